package ssa

import (
	"fmt"
	"testing"
)

func TestTheWriterRemembersItsLastWriteOfAnObject(t *testing.T) {
	m := newMemory(100)
	one := written{uid: "u1", version: "7", sum: [32]byte{1}}
	m.keep("Service shop/orders-rw", one)
	for name, row := range map[string]struct {
		object string
		is     written
		want   bool
	}{
		"the same":                         {"Service shop/orders-rw", one, true},
		"another object":                   {"Service shop/orders-ro", one, false},
		"another one of the name":          {"Service shop/orders-rw", written{uid: "u2", version: "7", sum: one.sum}, false},
		"another version":                  {"Service shop/orders-rw", written{uid: "u1", version: "8", sum: one.sum}, false},
		"other content":                    {"Service shop/orders-rw", written{uid: "u1", version: "7", sum: [32]byte{2}}, false},
		"a border between texts elsewhere": {"Service shop/orders-rw", written{uid: "u17", version: "", sum: one.sum}, false},
	} {
		if got := m.has(row.object, row.is); got != row.want {
			t.Errorf("%s: remembered is %v, want %v", name, got, row.want)
		}
	}
	for i := range 1000 {
		m.keep(fmt.Sprintf("Service shop/s%d", i), one)
	}
	if len(m.known) != 100 || !m.has("Service shop/s999", one) {
		t.Errorf("%d are remembered, want 100 and the newest among them", len(m.known))
	}
}
