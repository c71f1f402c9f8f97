package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// decodeStrict is how a program reads what the one before it left: see ReadKept of the agent.
func decodeStrict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// What releases have written. A later one reads all of it; add what yours writes, and leave the others as they are.
const (
	promiseOfOne = `{"epoch":4,"candidate":"b","lease":4,"version":9,"fenced":true,"released":true,"run":2}`
	promiseOld   = `{"epoch":4,"candidate":"b","lease":4,"fenced":true,"released":true}`
	recordOfOne  = `{"version":7,"epoch":5,"leader":"b","voters":["a","b","c"],"timeline":4,"start":{"known":true,"rank":3,"at":90,"text":"0/5A"},` +
		`"history":[{"epoch":1,"timeline":1,"at":0},{"epoch":5,"timeline":4,"parent":1,"at":90,"text":"0/5A"}]}`
)

func TestReleasesReadEachOther(t *testing.T) {
	promise := Promise{Epoch: 4, Candidate: "b", Lease: 4, Version: 9, Fenced: true, Released: true, Run: 2}
	old := promise
	old.Version, old.Run = 0, 0
	// A later release adds fields everywhere, also within what this one knows.
	later := func(text string) string {
		text = strings.ReplaceAll(text, `{"`, `{"novel":{"x":[1]},"`)
		return text
	}
	for sentence, row := range map[string]struct {
		text string
		want any
	}{
		"a promise of this release":                     {promiseOfOne, promise},
		"a later release reads an earlier one's":        {promiseOld, old},
		"an earlier release reads a later one's":        {later(promiseOfOne), promise},
		"a format that is known may be named":           {`{"format":1,` + promiseOfOne[1:], promise},
		"a record of this release":                      {recordOfOne, goodRecord()},
		"an earlier release reads a later one's record": {later(recordOfOne), goodRecord()},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got any
			var err error
			if _, is := row.want.(Promise); is {
				got, err = DecodePromise([]byte(row.text))
			} else {
				got, err = DecodeRecord([]byte(row.text))
			}
			if diff := cmp.Diff(row.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestThisReleaseWritesWhatItSays(t *testing.T) {
	record, err := goodRecord().Encode()
	if err != nil || string(record) != recordOfOne {
		t.Errorf("a record is written as %s, %v", record, err)
	}
	promise, err := json.Marshal(Promise{Epoch: 4, Candidate: "b", Lease: 4, Version: 9, Fenced: true, Released: true, Run: 2})
	if err != nil || string(promise) != promiseOfOne {
		t.Errorf("a promise is written as %s, %v", promise, err)
	}
}

// TestEveryKeptFieldWasThoughtOf : who adds a field says here whether an earlier release may ignore it, and drop it when it writes. If it
// may not, knownFormat must grow, and pods whose own agent is older must be replaced first: see docs/decisions/0008.
func TestEveryKeptFieldWasThoughtOf(t *testing.T) {
	var got []string
	for _, kind := range []reflect.Type{reflect.TypeFor[Promise](), reflect.TypeFor[Record](), reflect.TypeFor[Generation](), reflect.TypeFor[Position](), reflect.TypeFor[Recovered]()} {
		for i := range kind.NumField() {
			name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			got = append(got, kind.Name()+" "+name)
		}
	}
	want := []string{
		// Of format 1: no program does without them.
		"Promise epoch", "Promise candidate", "Promise lease", "Promise version", "Promise fenced", "Promise released", "Promise run",
		"Record version", "Record epoch", "Record leader", "Record voters", "Record pending", "Record witness", "Record degraded",
		"Record switchover", "Record recovered", "Record timeline", "Record start", "Record history",
		"Generation epoch", "Generation timeline", "Generation parent", "Generation at", "Generation text",
		"Position known", "Position rank", "Position at", "Position text",
		"Recovered id", "Recovered epoch", "Recovered dropped",
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-known +there):\n%s", diff)
	}
}
