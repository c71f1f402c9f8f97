package lease

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func goodRecord() Record {
	return Record{
		Version: 7, Epoch: 5, Leader: "b", Voters: []string{"a", "b", "c"}, Timeline: 4,
		Start:   Position{Known: true, Rank: 3, At: 90, Text: "0/5A"},
		History: []Generation{{Epoch: 1, Timeline: 1}, {Epoch: 5, Timeline: 4, Parent: 1, At: 90, Text: "0/5A"}},
	}
}

func TestRecordSurvivesEncoding(t *testing.T) {
	want := goodRecord()
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRecord(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestDecodeRecordRefuses(t *testing.T) {
	good, err := goodRecord().Encode()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ from, to, want string }{
		"a later format":                    {`"leader":"b"`, `"leader":"b","format":2`, "a later release wrote it: it is of format 2, and this one knows format 1"},
		"two values":                        {`{"version"`, `{}{"version"`, "more than one"},
		"epoch zero":                        {`"epoch":5,"leader"`, `"epoch":0,"leader"`, "epoch 0"},
		"an epoch that JSON would round":    {`"epoch":5,"leader"`, `"epoch":9007199254740993,"leader"`, "out of bounds"},
		"a leader who is no voter":          {`"leader":"b"`, `"leader":"x"`, "not among the voters"},
		"an empty voter list":               {`["a","b","c"]`, `[]`, "0 voters"},
		"a voter twice":                     {`["a","b","c"]`, `["a","b","b"]`, "sorted and unique"},
		"unsorted voters":                   {`["a","b","c"]`, `["b","a","c"]`, "sorted and unique"},
		"a voter that is no name":           {`["a","b","c"]`, `["a","b","c d"]`, "bad voter"},
		"a timeline that follows itself":    {`"parent":1`, `"parent":4`, "out of bounds"},
		"history that goes back":            {`{"epoch":5,"timeline":4`, `{"epoch":1,"timeline":4`, "does not follow"},
		"history beyond the record's epoch": {`{"epoch":5,"timeline":4`, `{"epoch":6,"timeline":4`, "out of bounds"},
		"no timeline":                       {`"timeline":4,"start"`, `"timeline":0,"start"`, "timeline 0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(string(good), test.from, test.to, 1)
			if text == string(good) {
				t.Fatalf("%q is not in %s", test.from, good)
			}
			_, err := DecodeRecord([]byte(text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestNextRecordReservesAFreshTimeline(t *testing.T) {
	rec := goodRecord()
	got := rec.next(9, "c", Position{Known: true, Rank: 3, At: 120, Text: "0/78"})
	want := Record{
		Version: 8, Epoch: 9, Leader: "c", Voters: []string{"a", "b", "c"}, Timeline: 5,
		Start: Position{Known: true, Rank: 3, At: 120, Text: "0/78"},
		History: []Generation{
			{Epoch: 1, Timeline: 1},
			{Epoch: 5, Timeline: 4, Parent: 1, At: 90, Text: "0/5A"},
			{Epoch: 9, Timeline: 5, Parent: 3, At: 120, Text: "0/78"},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for range 3 * maxHistory {
		got = got.next(got.Epoch+1, "a", Position{Known: true, Rank: got.Timeline, At: 1})
	}
	if _, err := got.Encode(); err != nil {
		t.Errorf("a long history: %v", err)
	}
	if d := cmp.Diff(goodRecord(), rec); d != "" {
		t.Errorf("next changed the record that it was given: %s", d)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	good, err := goodRecord().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"epoch":1,"leader":"m0","voters":["m0"],"timeline":1,"start":{"known":true}}`))
	f.Add([]byte(`{"version":1e3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatalf("decoded, but does not encode: %v", err)
		}
		r2, err := DecodeRecord(again)
		if err != nil {
			t.Fatalf("encoded, but does not decode: %v", err)
		}
		if d := cmp.Diff(r, r2, cmp.Comparer(func(a, b []Generation) bool {
			return len(a) == len(b) && (len(a) == 0 || cmp.Equal(a, b))
		})); d != "" {
			t.Error(d)
		}
	})
}

func FuzzDecodePromise(f *testing.F) {
	f.Add([]byte(`{"epoch":3,"candidate":"a","lease":2,"fenced":false,"released":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := DecodePromise(b); err == nil && p.Validate() != nil {
			t.Errorf("decoded an invalid promise: %+v", p)
		}
	})
}
