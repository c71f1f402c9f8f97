package event

import (
	"math"
	"strconv"
	"testing"
	"time"
)

func TestState(t *testing.T) {
	for text, code := range map[string]State{"00000": 0, "00001": NoState, "42601": 4*36*36*36*36 + 2*36*36*36 + 6*36*36 + 1, "ZZZZZ": 60466175} {
		if got := code.String(); got != text {
			t.Errorf("%d is %q, want %q", uint32(code), got, text)
		}
		if got := code.Class(); got != text[:2] {
			t.Errorf("%d is of class %q", uint32(code), got)
		}
	}
}

func TestKindsHaveNames(t *testing.T) {
	for kind, want := range map[Kind]string{Text: "text", Slow: "slow", Failed: "failed", 0: "kind 0", 9: "kind 9"} {
		if got := kind.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(kind), got, want)
		}
	}
}

func TestBounds(t *testing.T) {
	if got, want := Bound(8*20-1), time.Second; got != want {
		t.Errorf("the slot below a second ends at %v", got)
	}
	if got := Bound(Buckets - 2); got < 58*time.Second || got > 64*time.Second {
		t.Errorf("the last but one slot ends at %v", got)
	}
	if got := Bound(Buckets - 1); got != math.MaxInt64 {
		t.Errorf("the last slot ends at %v", got)
	}
	for slot := 1; slot < Buckets; slot++ {
		if Bound(slot) <= Bound(slot-1) {
			t.Errorf("slot %d ends at %v, and the one before at %v", slot, Bound(slot), Bound(slot-1))
		}
	}
}

func TestQuantilesLieInTheirSlots(t *testing.T) {
	var c Counts
	if got := c.Quantile(0.5); got != 0 {
		t.Errorf("without calls: %v", got)
	}
	c.Slots[100], c.Slots[150] = 99, 1
	for q, slot := range map[float64]int{0.01: 100, 0.5: 100, 0.99: 100, 0.999: 150, 1: 150} {
		if got := c.Quantile(q); got < Bound(slot-1) || got > Bound(slot) {
			t.Errorf("quantile %g is %v, not between %v and %v", q, got, Bound(slot-1), Bound(slot))
		}
	}
}

func TestATextThatWasNotReadAsSQLIsKnownByItsState(t *testing.T) {
	for code, want := range map[string]bool{
		"00000": true, "42703": true, "22012": true, "23505": true, "57014": true, "25P02": true, "40001": true,
		"42601": false, "22021": false, "22P06": false, "57P01": false, "53200": false, "00001": false,
	} {
		n, err := strconv.ParseUint(code, 36, 32)
		if err != nil {
			t.Fatal(err)
		}
		if got := State(n).Parsed(); got != want {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
}
