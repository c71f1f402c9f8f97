package aggregate

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/statement"
)

// Bounds of the texts that are remembered. A client writes them, so each is needed.
const (
	// mostTexts bounds their number, as the kernel's side bounds those that it has sent, and mostBytes what they take.
	mostTexts, mostBytes = 16384, 32 << 20
	// mostForms bounds the statements of one text that have names of their own.
	mostForms = 64
	// mostLabel bounds a text as a label, in bytes.
	mostLabel = 1024
)

// Query is a statement in its normal form.
type Query struct {
	ID, Text string
	Cut      bool // the text is not whole
}

// known is what a print stands for.
type known struct {
	forms []Query
	cut   bool // the text has more statements than forms, or may have
	size  int
}

// Names tells statements by the prints that the kernel counts under. Its methods may not be called side by side.
type Names struct {
	texts   map[uint64]known // by print
	size    int              // of all
	full    bool             // a text found no room since the last Drop that made some
	dropped uint64
}

// NewNames knows no text yet.
func NewNames() *Names { return &Names{texts: map[uint64]known{}} }

// Learn takes the text of a print. Whole is its size before the kernel's side cut it. While there is no room, the text is not taken: what it stands
// for is Other until Drop makes room and the text is sent again.
func (n *Names) Learn(e event.Event) {
	of := e.Key.Print
	before, again := n.texts[of]
	if !again && (n.full || len(n.texts) >= mostTexts) {
		n.refuse()
		return
	}
	k := known{cut: e.Whole > len(e.Text)}
	for nth, form := range forms(e) {
		if nth == mostForms {
			k.cut = true
			break
		}
		q := newQuery(form.ID, form.Text)
		if e.Whole > len(e.Text) {
			q = cutQuery(of, uint32(nth), q.Text)
		}
		k.forms = append(k.forms, q)
		k.size += sizeOf(q)
	}
	k.size += entrySize
	if n.size-before.size+k.size > mostBytes {
		n.refuse()
		return
	}
	n.size += k.size - before.size
	n.texts[of] = k
}

// forms of a text; one that is normal already is itself.
func forms(e event.Event) []statement.Form {
	if !e.Normal {
		return statement.Forms(e.Text)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.Text)) // a hash never fails to write
	return []statement.Form{{ID: h.Sum64(), Text: e.Text}}
}

func (n *Names) refuse() {
	n.full = true
	n.dropped++
}

// What an entry of the map takes beside its statements, and a statement beside its strings.
const entrySize, querySize = 96, 40

func sizeOf(q Query) int { return querySize + len(q.ID) + len(q.Text) }

// Full says whether a text found no room.
func (n *Names) Full() bool { return n.full }

// Known are the prints whose text is known.
func (n *Names) Known() iter.Seq[uint64] { return maps.Keys(n.texts) }

// Drop forgets the texts that are not of these prints, and says whether it did: the kernel's side is then to send all but those that are Known
// again when it meets them.
func (n *Names) Drop(but map[uint64]bool) bool {
	before := len(n.texts)
	maps.DeleteFunc(n.texts, func(of uint64, k known) bool {
		if but[of] {
			return false
		}
		n.size -= k.size
		return true
	})
	if len(n.texts) == before {
		return false
	}
	n.full = false
	return true
}

// Of tells which statement a key counts. It is not ok if the text is not known.
func (n *Names) Of(k event.Key) (Query, bool) {
	text, ok := n.texts[k.Print]
	switch {
	case k.Print == 0 || !ok:
		return Query{}, false
	case int(k.Nth) < len(text.forms):
		return text.forms[k.Nth], true
	case text.cut:
		return cutQuery(k.Print, k.Nth, ""), true
	}
	return Query{}, false
}

// Dropped counts texts that found no room.
func (n *Names) Dropped() uint64 { return n.dropped }

// cutQuery is a statement of a text that is not whole: its end is known to its print alone.
func cutQuery(of uint64, nth uint32, text string) Query {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, of), nth)) // a hash never fails to write
	q := newQuery(h.Sum64(), text+" …")
	q.Cut = true
	return q
}

func newQuery(hash uint64, text string) Query {
	q := Query{ID: id(hash)}
	q.Text, q.Cut = label(text)
	return q
}

func id(hash uint64) string { return fmt.Sprintf("%016x", hash) }

// label makes a text fit for a label: valid, and not long; it says whether it was cut. It is a copy, so that nothing else of a text is kept for
// its sake.
func label(text string) (string, bool) {
	const more = "…"
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= mostLabel {
		return strings.Clone(text), false
	}
	return strings.ToValidUTF8(text[:mostLabel-len(more)], "") + more, true
}
