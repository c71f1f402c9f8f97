package aggregate

import (
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

var orders = Instance{Namespace: "shop", Database: "orders", Name: "orders-1"}

// asPrint names a statement after its print.
func asPrint(k event.Key) (Counted, bool) {
	return Counted{Instance: orders, Statement: Statement{Role: "primary", Query: strconv.FormatUint(k.Print, 10)}}, true
}

func counted(print, calls uint64, latency time.Duration) event.Counts {
	c := event.Counts{Key: event.Key{Print: print}, Place: print, Calls: calls, Rows: 2 * calls, Latency: latency}
	c.Slots[80] = calls
	return c
}

// calls of each statement of the one instance.
func calls(t *Table) map[string]uint64 {
	all := map[string]uint64{}
	for c, sums := range t.Statements(orders) {
		all[c.Statement.Query] += sums.Calls
	}
	return all
}

func total(t *testing.T, table *Table) *Sums {
	t.Helper()
	for _, sums := range table.Totals(orders) {
		return sums
	}
	t.Fatal("there are no totals")
	return nil
}

func TestTotalsAreExactWhateverHasAPlace(t *testing.T) {
	table := New(Options{Statements: 2})
	var all []event.Counts
	for print := range uint64(5) {
		all = append(all, counted(print+1, 10, time.Millisecond))
	}
	table.Take(slices.Values(all), asPrint)
	table.Take(slices.Values(all), asPrint) // nothing was counted since
	if diff := cmp.Diff(map[string]uint64{"1": 10, "2": 10, Other: 30}, calls(table)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if sums := total(t, table); sums.Calls != 50 || sums.Rows != 100 || sums.Slots[80] != 50 {
		t.Errorf("in all %d calls and %d rows, and %d in the slot; want 50, 100 and 50", sums.Calls, sums.Rows, sums.Slots[80])
	}
}

func TestAStatementThatWeighsMoreTakesThePlaceOfOneThatWeighsLess(t *testing.T) {
	table := New(Options{Statements: 1})
	table.Take(slices.Values([]event.Counts{counted(1, 10, time.Millisecond), counted(2, 10, 10*time.Millisecond)}), asPrint)
	table.Rank()
	table.Take(slices.Values([]event.Counts{counted(1, 11, 2*time.Millisecond), counted(2, 13, 13*time.Millisecond)}), asPrint)
	// The ten calls of 2 that were counted as other stay there.
	if diff := cmp.Diff(map[string]uint64{"2": 3, Other: 11}, calls(table)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if table.Displaced() != 1 || total(t, table).Calls != 24 {
		t.Errorf("%d lost their place and %d were counted, want 1 and 24", table.Displaced(), total(t, table).Calls)
	}
	table.Rank()
	if table.Displaced() != 1 {
		t.Error("two statements take turns")
	}
}

func TestATextIsShownOnceItIsKnown(t *testing.T) {
	table := New(Options{Statements: 1})
	text := ""
	whose := func(k event.Key) (Counted, bool) {
		c, ok := asPrint(k)
		c.Text = text
		return c, ok
	}
	shown := func() string {
		for c := range table.Statements(orders) {
			return c.Text
		}
		return ""
	}
	for n, row := range []struct{ text, want string }{{"", ""}, {"SELECT ?", "SELECT ?"}, {"", "SELECT ?"}} {
		text = row.text
		table.Take(slices.Values([]event.Counts{counted(1, uint64(n+1), 0)}), whose)
		if got := shown(); got != row.want {
			t.Errorf("after %d calls %q is shown, want %q", n+1, got, row.want)
		}
	}
}

func TestErrorsAreCountedByClass(t *testing.T) {
	table := New(Options{Statements: 10})
	of := func(code string) event.State {
		n, err := strconv.ParseUint(code, 36, 32)
		if err != nil {
			t.Fatal(err)
		}
		return event.State(n)
	}
	var all []event.Counts
	for i, code := range []string{"22012", "22003", "QQ123"} {
		c := counted(1, 2, time.Millisecond)
		c.Key.State, c.Place = of(code), uint64(2+i)
		all = append(all, c)
	}
	table.Take(slices.Values(append(all, counted(1, 5, time.Millisecond))), asPrint)
	if diff := cmp.Diff(map[string]uint64{"22": 4, Other: 2}, total(t, table).Errors); diff != "" || total(t, table).Calls != 11 {
		t.Errorf("%d calls, want 11; errors (-want +got)\n%s", total(t, table).Calls, diff)
	}
}

func TestARoleThatChangesIsCountedFromThenOn(t *testing.T) {
	table, role := New(Options{Statements: 10}), "replica"
	whose := func(event.Key) (Counted, bool) {
		return Counted{Instance: orders, Statement: Statement{Role: role, Query: "q"}}, true
	}
	table.Take(slices.Values([]event.Counts{counted(1, 4, 0)}), whose)
	role = "primary"
	table.Take(slices.Values([]event.Counts{counted(1, 7, 0)}), whose)
	got := map[string]uint64{}
	for role, sums := range table.Totals(orders) {
		got[role] = sums.Calls
	}
	if diff := cmp.Diff(map[string]uint64{"replica": 4, "primary": 3}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAKeyThatGetsAnotherPlaceBeginsThereAtNothing(t *testing.T) {
	table := New(Options{Statements: 10})
	at := func(place, calls uint64) event.Counts {
		c := counted(1, calls, 0)
		c.Place = place
		return c
	}
	for _, told := range [][]event.Counts{{at(1, 4)}, {at(1, 5), at(2, 2)}, {at(2, 3)}} {
		table.Take(slices.Values(told), asPrint)
	}
	if got := total(t, table).Calls; got != 8 {
		t.Errorf("%d calls, want 8", got)
	}
	if len(table.before) != 1 {
		t.Errorf("%d places are remembered, want the one that there is", len(table.before))
	}
}

func TestWhatEndsIsForgotten(t *testing.T) {
	table := New(Options{Statements: 10})
	table.Take(slices.Values([]event.Counts{counted(1, 4, 0)}), asPrint)
	table.ForgetCgroup(0)
	table.Forget(orders)
	if n := len(slices.Collect(table.Instances())) + len(table.before); n != 0 {
		t.Errorf("%d things are remembered", n)
	}
}

func TestAStatementIsNamedByItsNormalForm(t *testing.T) {
	names := NewNames()
	const text = "SELECT 1; select * from t where a = 'secret'"
	names.Learn(event.Event{Key: event.Key{Print: 7}, Text: text, Whole: len(text)})
	names.Learn(event.Event{Key: event.Key{Print: 8}, Text: "SELECT * FROM t  WHERE a = 42", Whole: 29})
	first, _ := names.Of(event.Key{Print: 7})
	second, _ := names.Of(event.Key{Print: 7, Nth: 1})
	same, _ := names.Of(event.Key{Print: 8})
	if first.Text != "SELECT ?" || second.Text != "select * from t where a = ?" || same.ID != second.ID || first.ID == second.ID {
		t.Errorf("%+v, %+v and %+v", first, second, same)
	}
	for name, k := range map[string]event.Key{"no text": {}, "an unknown one": {Print: 9}, "none at its place": {Print: 7, Nth: 2}} {
		if q, ok := names.Of(k); ok {
			t.Errorf("%s: named %+v", name, q)
		}
	}
}

func TestTextsThatAreCutAlikeStayApart(t *testing.T) {
	names, seen := NewNames(), map[string]bool{}
	for print := range uint64(2) {
		names.Learn(event.Event{Key: event.Key{Print: print + 1}, Text: "SELECT a, b", Whole: 5000})
		for nth := range uint32(2) {
			q, ok := names.Of(event.Key{Print: print + 1, Nth: nth})
			if !ok || seen[q.ID] {
				t.Errorf("statement %d of print %d is %+v", nth, print, q)
			}
			seen[q.ID] = true
		}
	}
}

// every print that has a text.
func every(n *Names) iter.Seq2[uint64, bool] {
	return func(yield func(uint64, bool) bool) {
		for print := range n.texts {
			if !yield(print, true) {
				return
			}
		}
	}
}

func TestATextOfManyStatementsIsBounded(t *testing.T) {
	names := NewNames()
	text := strings.Repeat("a;", 2048)
	names.Learn(event.Event{Key: event.Key{Print: 1}, Text: text, Whole: len(text)})
	if n := len(names.texts[1].forms); n != mostForms {
		t.Errorf("%d statements have names", n)
	}
	last, _ := names.Of(event.Key{Print: 1, Nth: mostForms - 1})
	cut, known := names.Of(event.Key{Print: 1, Nth: 2047})
	if last.Text != "a" || !known || cut.Text != " …" {
		t.Errorf("%+v and %+v", last, cut)
	}
}

func TestTheBytesOfTextsAreBounded(t *testing.T) {
	names := NewNames()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const texts = 300
	for print := range uint64(texts) {
		text := strings.Repeat(fmt.Sprintf("aa+bb+cc%d;", print), 512)[:4096]
		names.Learn(event.Event{Key: event.Key{Print: print + 1}, Text: text, Whole: 4096})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := after.HeapAlloc - before.HeapAlloc; took > uint64(names.size)*5/4 {
		t.Errorf("%d texts took %d bytes and are reckoned with %d", len(names.texts), took, names.size)
	}
	names.size = mostBytes - 100
	names.Learn(event.Event{Key: event.Key{Print: texts + 1}, Text: "SELECT 1", Whole: 8})
	if !names.Full() || len(names.texts) != texts {
		t.Errorf("%d texts of %d bytes are known", len(names.texts), names.size)
	}
}

func TestTextsAreBounded(t *testing.T) {
	names := NewNames()
	for print := range uint64(mostTexts + 1) {
		names.Learn(event.Event{Key: event.Key{Print: print + 1}, Text: "SELECT 1", Whole: 8})
	}
	if len(names.texts) != mostTexts || names.Dropped() != 1 || !names.Full() {
		t.Errorf("%d texts are known and %d found no room", len(names.texts), names.Dropped())
	}
	if names.Drop(maps.Collect(every(names))) || !names.Full() {
		t.Error("room was made by dropping nothing")
	}
	if !names.Drop(map[uint64]bool{7: true}) || names.Full() || names.size != names.texts[7].size {
		t.Errorf("%d texts of %d bytes are known", len(names.texts), names.size)
	}
	if _, known := names.Of(event.Key{Print: 7}); !known {
		t.Error("a text that was to be kept is not known")
	}
	long, cut := label(string(slices.Repeat([]rune{'ä'}, 1000)))
	if len(long) > mostLabel || !cut {
		t.Errorf("a label has %d bytes", len(long))
	}
}
