package query

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/statement"
)

// print is the fingerprint that the kernel's side makes of a text.
func (d *driven) print(t *testing.T, text string) uint64 {
	t.Helper()
	d.say(t, asks(query(text)), says(ready()))
	var c kernelConn
	if err := d.family.kernel.Conns.Lookup(d.pid, &c); err != nil {
		t.Fatal(err)
	}
	return c.Print
}

func TestTextsThatDifferInLiteralsShareAFingerprint(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	for sentence, texts := range map[string][]string{
		"numbers":            {"SELECT a FROM t WHERE b = 1", "SELECT a FROM t WHERE b = 12345", "SELECT a FROM t WHERE b = 1.5"},
		"strings":            {"SELECT a FROM t WHERE b = 'x'", "SELECT a FROM t WHERE b = 'it''s'", "SELECT a FROM t WHERE b = 1"},
		"escapes":            {`SELECT E'a'`, `SELECT E'\''`, `SELECT E'\\'`},
		"lists":              {"SELECT a FROM t WHERE b IN (1)", "SELECT a FROM t WHERE b IN (1,2, 3)", "SELECT a FROM t WHERE b IN ('x', 'y')"},
		"rows":               {"INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b''c')"},
		"comments and space": {"SELECT  a\n FROM t", "SELECT a /* x /* y */ 'z' */ FROM -- it's\n t"},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, text := range texts[1:] {
				if d.print(t, texts[0]) != d.print(t, text) {
					t.Errorf("%q and %q differ", texts[0], text)
				}
			}
		})
	}
}

// Two texts that share a fingerprint are shown as one statement; that they are must be the rule of the normal form, not a slip here.
func TestAFingerprintIsNeverCoarserThanTheNormalForm(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	pieces := []string{
		"SELECT ", "a", "b", "t1", "_x", " ", "\n", ",", ", ", "(", ")", "(1", "(1, ", "1", "12", "0", "1.5", "2e3", "-", " - ", "+", "=", "*", "/", "|", "->", "->>", "?", "@>",
		"'x'", "'it''s'", `E'\'x'`, `'\'`, "''", `"q a"`, `"q""a"`, "$1", "$23", "$$x'y$$", "$t$ ' $t$", "--c'\n", "/*c'*/", "/*/*c*/'*/", ";", "::int", "é", "e", "E", "x'ff'",
		"IN (1)", "IN (1, 2)", "IN ('a', 'b', 'c')", "(1, a)", "(a, 1)", "(1),(2)", "[1]", ".", "true", "NULL", "_", "0x1F", "1_000", "E'", "'", "$", "#",
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	type known struct{ form, text string }
	prints := map[uint64]known{}
	for range 20000 {
		var b strings.Builder
		for range 1 + random.IntN(8) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		text := b.String()
		var form strings.Builder
		for _, f := range statement.Forms(text) {
			fmt.Fprintf(&form, "%x;", f.ID)
		}
		print := d.print(t, text)
		other, ok := prints[print]
		if ok && other.form != form.String() {
			t.Fatalf("%q and %q share a fingerprint, but not the normal form (seed %d)", other.text, text, seed)
		}
		prints[print] = known{form.String(), text}
	}
	if len(prints) < 10000 {
		t.Errorf("only %d fingerprints of 20000 texts: this test looks at too little", len(prints))
	}
}
