package lease

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPromiseFile(t *testing.T) {
	f := PromiseFile{Path: filepath.Join(t.TempDir(), "promise.json")}
	if p, found, err := f.Load(); err != nil || found || p != (Promise{}) {
		t.Fatalf("no file: %+v, %v, %v", p, found, err)
	}
	for _, want := range []Promise{
		{Epoch: 3, Candidate: "a", Lease: 2},
		{Epoch: 4, Candidate: "b", Lease: 4, Fenced: true, Released: true},
	} {
		if err := f.Save(want); err != nil {
			t.Fatal(err)
		}
		got, found, err := f.Load()
		if err != nil || !found {
			t.Fatal(found, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	if err := f.Save(Promise{Epoch: 1}); err == nil {
		t.Error("an epoch without a candidate was saved")
	}
}

func TestPromiseFileThatCannotBeUnderstoodIsAnError(t *testing.T) {
	tests := map[string]string{
		"empty, as after a crash of a careless writer": "",
		"cut short":             `{"epoch":3,"cand`,
		"a later format":        `{"format":2,"epoch":3,"candidate":"a","lease":2,"fenced":false,"released":false}`,
		"a format that is none": `{"format":"x","epoch":3,"candidate":"a"}`,
		"something else":        `{"hello":"world"}`,
		"nothing in it":         `{}`,
		"two values":            `{"epoch":3,"candidate":"a"}{}`,
		"a negative epoch":      `{"epoch":-1,"candidate":"a"}`,
		"an epoch of nobody":    `{"epoch":1}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			f := PromiseFile{Path: filepath.Join(t.TempDir(), "promise.json")}
			if err := os.WriteFile(f.Path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if p, found, err := f.Load(); err == nil {
				t.Errorf("got %+v, %v, want an error", p, found)
			}
		})
	}
}
