package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
)

// Object is a Kubernetes object as JSON. What this package does not know is
// kept, so that an Update takes nothing away.
type Object map[string]any

func decodeObject(b []byte) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // a float64 would round large integers
	var o Object
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("the answer is no object: %w", err)
	}
	if _, err := d.Token(); o == nil || !errors.Is(err, io.EOF) {
		return nil, errors.New("the answer is no object, or more than one")
	}
	return o, nil
}

// Clone returns a deep copy.
func (o Object) Clone() Object {
	return Object(cloneMap(o))
}

func cloneMap(m map[string]any) map[string]any {
	c := maps.Clone(m)
	for k, v := range c {
		c[k] = cloneValue(v)
	}
	return c
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return cloneMap(v)
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = cloneValue(v[i])
		}
		return c
	}
	return v
}

// Map returns the map at the path, making it where it is missing.
func (o Object) Map(path ...string) map[string]any {
	m := map[string]any(o)
	for _, p := range path {
		next, ok := m[p].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[p] = next
		}
		m = next
	}
	return m
}

// text reads without making anything.
func (o Object) text(path ...string) string {
	var v any = map[string]any(o)
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[p]
	}
	s, _ := v.(string) // anything else is no text
	return s
}

// ResourceVersion returns metadata.resourceVersion.
func (o Object) ResourceVersion() string { return o.text("metadata", "resourceVersion") }

// Annotation returns the annotation's value, empty when there is none.
func (o Object) Annotation(name string) string { return o.text("metadata", "annotations", name) }

// SetAnnotation sets the annotation; the empty value removes it.
func (o Object) SetAnnotation(name, value string) {
	a := o.Map("metadata", "annotations")
	if value == "" {
		delete(a, name)
		return
	}
	a[name] = value
}
