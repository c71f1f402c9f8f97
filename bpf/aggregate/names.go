package aggregate

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/statement"
)

const (
	// mostTexts bounds the texts that are remembered, as the kernel's side bounds those that it has sent. What falls out is Other until it
	// is sent again.
	mostTexts = 16384
	// mostLabel bounds a text as a label, in bytes.
	mostLabel = 1024
)

// Query is a statement in its normal form.
type Query struct{ ID, Text string }

// Names tells statements by the prints that the kernel counts under. Its methods may not be called side by side.
type Names struct {
	forms   map[uint64][]Query // by print
	cut     map[uint64]bool    // prints whose text is not whole
	dropped uint64
}

// NewNames knows no text yet.
func NewNames() *Names { return &Names{forms: map[uint64][]Query{}, cut: map[uint64]bool{}} }

// Learn takes the text of a print. Whole is its size before the kernel's side cut it.
func (n *Names) Learn(e event.Event) {
	of := e.Key.Print
	if _, known := n.forms[of]; !known && len(n.forms) >= mostTexts {
		n.dropped++
		clear(n.forms)
		clear(n.cut)
	}
	var queries []Query
	for nth, form := range statement.Forms(e.Text) {
		q := Query{ID: id(form.ID), Text: label(form.Text)}
		if e.Whole > len(e.Text) {
			q = cutQuery(of, uint32(nth), q.Text)
		}
		queries = append(queries, q)
	}
	n.forms[of] = queries
	if e.Whole > len(e.Text) {
		n.cut[of] = true
	}
}

// Of tells which statement a key counts. It is not ok if the text is not known.
func (n *Names) Of(k event.Key) (Query, bool) {
	forms, known := n.forms[k.Print]
	switch {
	case k.Print == 0 || !known:
		return Query{}, false
	case int(k.Nth) < len(forms):
		return forms[k.Nth], true
	case n.cut[k.Print]:
		return cutQuery(k.Print, k.Nth, ""), true
	}
	return Query{}, false
}

// Dropped counts how often all texts were forgotten, because there were too many.
func (n *Names) Dropped() uint64 { return n.dropped }

// cutQuery is a statement of a text that is not whole: its end is known to its print alone.
func cutQuery(of uint64, nth uint32, text string) Query {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, of), nth)) // a hash never fails to write
	return Query{ID: id(h.Sum64()), Text: label(text + " …")}
}

func id(hash uint64) string { return fmt.Sprintf("%016x", hash) }

// label makes a text fit for a label: valid, and not long.
func label(text string) string {
	const more = "…"
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= mostLabel {
		return text
	}
	return strings.ToValidUTF8(text[:mostLabel-len(more)], "") + more
}
