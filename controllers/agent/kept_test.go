package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func keptOfReplica() Kept {
	return Kept{
		Format: keptFormat, UID: testUID, Instance: "orders-2", Doors: []int{7, 8}, Output: 9,
		Lease: lease.Kept{
			Self: "orders-2", Database: testUID, At: 1000, Stage: "Idle",
			Voter: lease.KeptVoter{Promise: lease.Promise{Epoch: 3, Candidate: "orders-1"}, Disk: lease.Promise{Epoch: 3, Candidate: "orders-1"}, Bound: "orders-1", BoundUntil: 4000},
		},
		Keeper: keptKeeper{Life: up, Kind: engine.Replica, PID: 17},
	}
}

func TestReadKept(t *testing.T) {
	encode := func(change func(*Kept)) []byte {
		k := keptOfReplica()
		change(&k)
		raw, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	good := encode(func(*Kept) {})
	rows := map[string]struct {
		raw  []byte
		want string
	}{
		"what a program of this format left":           {good, ""},
		"another format":                               {encode(func(k *Kept) { k.Format = 2 }), "is of format 2, and this program knows format 1"},
		"a later format, whatever else it says":        {[]byte(`{"format":9,"unheard":{"of":1}}`), "is of format 9"},
		"a field that this program does not know":      {bytes.Replace(good, []byte(`{"format":1`), []byte(`{"format":1,"fence":true`), 1), "unknown field"},
		"a field of the leadership's that it does not": {bytes.Replace(good, []byte(`"bound":`), []byte(`"bond":"x","bound":`), 1), "unknown field"},
		"half of it":                                      {good[:len(good)/2], "unexpected end"},
		"nothing":                                         {nil, "unexpected end"},
		"too much":                                        {bytes.Repeat([]byte("x"), maxKept+1), "more than"},
		"a server without a process":                      {encode(func(k *Kept) { k.Keeper.PID = 0 }), "a server that is"},
		"a server that nobody hears":                      {encode(func(k *Kept) { k.Output = 0 }), "a server that is"},
		"no server but its process":                       {encode(func(k *Kept) { k.Keeper.Life = down }), "a server that is"},
		"a server that may have fallen":                   {encode(func(k *Kept) { k.Keeper.Life = fallen }), "a server that is"},
		"a port too few":                                  {encode(func(k *Kept) { k.Doors = k.Doors[:1] }), "1 listeners"},
		"a leadership of another member":                  {encode(func(k *Kept) { k.Lease.Self = "orders-3" }), "of orders-3 of Database"},
		"a promise that cannot be":                        {encode(func(k *Kept) { k.Lease.Voter.Disk.Candidate = "" }), "bad candidate"},
		"a state that the protocol never stands still in": {encode(func(k *Kept) { k.Lease.Stage = "Standing" }), `stage "Standing"`},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			_, err := ReadKept(bytes.NewReader(row.raw), 2000)
			switch {
			case row.want == "" && err != nil:
				t.Error(err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("got %v, want it to say %q", err, row.want)
			}
		})
	}
}

// TestInheritNothing: an ordinary start has nothing to take up, and a descriptor that is none is an error, not an ordinary start.
func TestInheritNothing(t *testing.T) {
	if k, err := Inherit(lease.BootClock{}); k != nil || err != nil {
		t.Errorf("got %v, %v", k, err)
	}
	for _, text := range []string{"", "x", "2", "-1", "9999"} {
		t.Setenv(EnvKept, text)
		if k, err := Inherit(lease.BootClock{}); k != nil || err == nil {
			t.Errorf("%q: got %v, %v", text, k, err)
		}
		if _, found := os.LookupEnv(EnvKept); found {
			t.Errorf("%q is still in the environment: the server would see it", text)
		}
	}
}

// TestRunsHere takes the machine out of the file's own words.
func TestRunsHere(t *testing.T) {
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	foreign := bytes.Clone(raw[:64])
	foreign[18] ^= 0x11
	rows := map[string]struct {
		raw  []byte
		want string
	}{
		"this very program":       {raw[:64], ""},
		"of another architecture": {foreign, "the program is for machine"},
		"a script":                {[]byte("#!/bin/sh\necho hello, world\n"), "no program"},
		"an empty file":           {nil, "no program"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(path, row.raw, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			err = runsHere(f)
			if (row.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}
