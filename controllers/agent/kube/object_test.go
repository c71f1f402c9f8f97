package kube

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzObject: an update must take nothing away of what this package does not know, and change what it is told to alone.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"metadata":{"resourceVersion":"7","annotations":{"a":"b"}},"spec":{"n":9007199254740993,"later":[1,{"x":null}]}}`))
	f.Add([]byte(`{"metadata":{"annotations":null}}`))
	f.Add([]byte(`{"metadata":[]}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := decodeObject(raw)
		if err != nil {
			return
		}
		before := plain(t, o)
		if diff := cmp.Diff(numbers(t, raw), before); diff != "" {
			t.Fatalf("reading and writing changes it:\n%s", diff)
		}
		c := o.Clone()
		c.SetAnnotation("plimsoll.dev/leadership", "new")
		c.Map("spec")["holderIdentity"] = "orders-1"
		if got := c.Annotation("plimsoll.dev/leadership"); got != "new" {
			t.Fatalf("the annotation is %q", got)
		}
		if diff := cmp.Diff(before, plain(t, o)); diff != "" {
			t.Fatalf("a change of the copy changes the object:\n%s", diff)
		}
		if o.ResourceVersion() != "" && c.ResourceVersion() != o.ResourceVersion() {
			t.Fatal("the copy has another resourceVersion")
		}
	})
}

func plain(t *testing.T, o Object) any {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return numbers(t, raw)
}

// numbers reads JSON and keeps the text of its numbers.
func numbers(t *testing.T, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Fatalf("%s was taken for one object", raw)
	}
	return v
}
