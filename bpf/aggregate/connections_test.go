package aggregate

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

func named(n uint64) Client { return Client{"app", "Deployment", strconv.FormatUint(n, 10)} }

// asPlace names a client after the place of its address.
func asPlace(c *event.Connections) (Visit, bool) {
	return Visit{orders, named(c.Place)}, true
}

func visit(place, opened, closed, bytes uint64) event.Connections {
	c := event.Connections{Place: place, Opened: opened, Closed: closed, Refused: opened, BytesIn: bytes, Retransmits: opened, RoundTrip: time.Millisecond}
	c.Slots[20] = opened
	return c
}

// opened and open now of each client.
func visits(t *Connections) map[string][2]uint64 {
	all := map[string][2]uint64{}
	for c, s := range t.Clients(orders) {
		all[c.Kind+c.Name] = [2]uint64{s.Opened, s.Open}
	}
	return all
}

func totalOf(t *Connections) ConnectionSums {
	for _, s := range t.Totals() {
		return *s
	}
	return ConnectionSums{}
}

func TestTotalsOfConnectionsAreExactWhoeverHasAPlace(t *testing.T) {
	table := NewConnections(2)
	all := []event.Connections{visit(1, 5, 1, 10), visit(2, 6, 2, 20), visit(3, 7, 3, 30), visit(4, 8, 8, 40)}
	for range 2 { // the second time nothing was counted, and what is open is open still
		table.Take(slices.Values(all), asPlace)
		want := map[string][2]uint64{"Deployment1": {5, 4}, "Deployment2": {6, 4}, "other": {15, 4}}
		if diff := cmp.Diff(want, visits(table)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		got := totalOf(table)
		if got.Open != 12 || got.Opened != 26 || got.Closed != 14 || got.BytesIn != 100 || got.Retransmits != 26 || got.Refused != 26 || got.Slots[20] != 26 || got.RoundTrip != 4*time.Millisecond {
			t.Errorf("in all %+v", got)
		}
	}
}

func TestAddressesOfOneClientAreCountedTogether(t *testing.T) {
	table := NewConnections(2)
	whose := func(*event.Connections) (Visit, bool) { return Visit{orders, named(1)}, true }
	table.Take(slices.Values([]event.Connections{visit(1, 5, 1, 10), visit(2, 6, 2, 20)}), whose)
	if diff := cmp.Diff(map[string][2]uint64{"Deployment1": {11, 8}}, visits(table)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAClientThatBecomesKnownTakesItsOpenConnectionsAlong(t *testing.T) {
	table, who := NewConnections(4), Client{Kind: "unknown"}
	whose := func(*event.Connections) (Visit, bool) { return Visit{orders, who}, true }
	table.Take(slices.Values([]event.Connections{visit(1, 5, 1, 10)}), whose)
	who = named(1)
	table.Take(slices.Values([]event.Connections{visit(1, 7, 2, 10)}), whose)
	if diff := cmp.Diff(map[string][2]uint64{"unknown": {5, 0}, "Deployment1": {2, 5}}, visits(table)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAClientThatDoesMoreTakesThePlaceOfOneThatDoesLess(t *testing.T) {
	table := NewConnections(1)
	table.Take(slices.Values([]event.Connections{visit(1, 1, 0, 0), visit(2, 10, 0, 0)}), asPlace)
	table.Rank()
	table.Take(slices.Values([]event.Connections{visit(1, 2, 0, 0), visit(2, 11, 0, 0)}), asPlace)
	// What was counted of 2 as other stays there; what it has open goes with it.
	if diff := cmp.Diff(map[string][2]uint64{"Deployment2": {1, 11}, "other": {11, 2}}, visits(table)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := totalOf(table); got.Opened != 13 || got.Open != 13 || table.Displaced() != 1 {
		t.Errorf("%d opened, %d open, %d displaced; want 13, 13 and 1", got.Opened, got.Open, table.Displaced())
	}
}

func TestClientsThatWaitAreBounded(t *testing.T) {
	table := NewConnections(1)
	var all []event.Connections
	for place := range uint64(mostWaiting + 10) {
		all = append(all, visit(place, 1, 1, 0))
	}
	table.Take(slices.Values(all), asPlace)
	if n := len(table.instances[orders].waiting); n != mostWaiting {
		t.Errorf("%d wait, want %d", n, mostWaiting)
	}
	for range 64 {
		table.Rank()
	}
	if n := len(table.instances[orders].waiting); n != 0 {
		t.Errorf("%d wait that did nothing of late", n)
	}
}

func TestConnectionsThatEndAreForgotten(t *testing.T) {
	table := NewConnections(4)
	table.Take(slices.Values([]event.Connections{visit(1, 4, 0, 0)}), asPlace)
	table.ForgetCgroup(0)
	table.Forget(orders)
	if n := len(maps.Collect(table.Totals())) + len(table.before); n != 0 {
		t.Errorf("%d things are remembered", n)
	}
	table.Take(slices.Values([]event.Connections{visit(1, 4, 0, 0)}), asPlace)
	table.Take(slices.Values([]event.Connections{}), asPlace) // its place was taken back
	if len(table.before) != 0 {
		t.Error("a place that is gone is remembered")
	}
}
