package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

const (
	envRuns   = "PLIMSOLL_FAULT_RUNS"
	envEvents = "PLIMSOLL_FAULT_EVENTS"
)

// plainKind is a Database of three.
const plainKind = ""

// TestFaults hurts a Database in every way of the table while applications write. With PLIMSOLL_FAULT_RUNS it is a benchmark that can be
// interrupted and goes on; else each main event happens once, but for those that happen beside other tests.
func TestFaults(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv(envRuns))
	if err != nil {
		runs = 0
	}
	a := &arena{t: t, book: faults.Book{Dir: os.Getenv("PLIMSOLL_FAULT_BOOK")}, keep: runs > 0}
	chosen, err := choose(everyEvent(), os.Getenv(envEvents), func(e event) bool { return runs > 0 || e.main && !e.inside })
	if err != nil {
		t.Fatal(err)
	}
	if runs == 0 {
		chosen = slices.Concat(byKind(chosen)...)
	}
	for _, e := range chosen {
		t.Run(e.Name, func(t *testing.T) {
			if runs == 0 {
				a.play(t, e, 1)
				return
			}
			a.repeat(t, e, runs)
		})
	}
	if a.keep {
		a.report(t, chosen, runs)
	}
}

// Those that other tests do not notice happen beside them, each kind to a Database of its own.

func TestFaultsInside(t *testing.T) { inside(t, plainKind) }

func TestFaultsInsidePair(t *testing.T) { inside(t, pairKind) }

func TestFaultsInsideLogVolume(t *testing.T) { inside(t, logVolumeKind) }

// insideKinds are those that have such a test.
func insideKinds() []string { return []string{plainKind, pairKind, logVolumeKind} }

func inside(t *testing.T, kind string) {
	t.Parallel()
	if os.Getenv(envRuns) != "" || os.Getenv(envEvents) != "" {
		t.Skip("TestFaults has been asked for certain events")
	}
	chosen, err := choose(everyEvent(), "", func(e event) bool { return e.main && e.inside && e.kind == kind })
	if err != nil || len(chosen) == 0 {
		t.Fatalf("%d events of the kind %q: %v", len(chosen), kind, err)
	}
	a := &arena{t: t, name: "inside-" + cmp.Or(kind, "plain") + "-", beside: true}
	for _, e := range chosen {
		t.Run(e.Name, func(t *testing.T) { a.play(t, e, 1) })
	}
}

func everyEvent() []event { return append(mainEvents(), rareEvents()...) }

// byKind puts events of one kind together: a Database for each is enough.
func byKind(events []event) [][]event {
	var all [][]event
	for _, e := range events {
		i := slices.IndexFunc(all, func(same []event) bool { return same[0].kind == e.kind })
		if i < 0 {
			all = append(all, []event{e})
			continue
		}
		all[i] = append(all[i], e)
	}
	return all
}

// choose the named events, or without a name those that are wanted.
func choose(all []event, names string, want func(event) bool) ([]event, error) {
	if names == "" {
		return slices.DeleteFunc(all, func(e event) bool { return !want(e) }), nil
	}
	var chosen []event
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(e event) bool { return e.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no event %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// arena is the Database that events of one kind share, made anew after one that left it hurt.
type arena struct {
	t    *testing.T
	name string // of its namespaces, beside others
	book faults.Book
	keep bool
	// beside others: the cluster is theirs, too, and nothing here may have hurt it.
	beside bool
	made   int
	d      *database
	kind   string
}

// repeat an event until it has had its runs, those of earlier calls among them.
func (a *arena) repeat(t *testing.T, e event, runs int) {
	t.Helper()
	for {
		n, err := a.book.Next(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if n > runs {
			return
		}
		t.Run(strconv.Itoa(n), func(t *testing.T) { a.play(t, e, n) })
	}
}

// database that the event hurts.
func (a *arena) database(t *testing.T, e event) *database {
	t.Helper()
	if a.d != nil && a.kind == e.kind {
		a.d.t = t
		return a.d
	}
	a.forget(t)
	a.made++
	spec := orders(shared.named(a.t, fmt.Sprintf("e2e-faults-%s%d", a.name, a.made)), 3)
	if a.keep {
		// Room for a gigabyte of log since the last checkpoint.
		spec.Spec.Storage.Size = resource.MustParse("6Gi")
		spec.Spec.Parameters = v1.Parameters{"max_wal_size": "4GB", "checkpoint_timeout": "30min"}
	}
	if e.spec != nil {
		e.spec(spec)
	}
	d := shared.create(t, spec)
	d.awaitReady(readyLimit)
	a.d, a.kind = d, e.kind
	return d
}

// forget the Database, so that two never run side by side.
func (a *arena) forget(t *testing.T) {
	t.Helper()
	if a.d == nil {
		return
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.d.key.Namespace}}
	a.d = nil
	if err := shared.Delete(t.Context(), ns); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete namespace %s: %v", ns.Name, err)
	}
}

// play one run of an event and keep what it showed.
func (a *arena) play(t *testing.T, e event, number int) {
	t.Helper()
	inTime(t)
	if !a.beside {
		if err := whole(t.Context()); err != nil {
			t.Fatalf("the cluster is not whole: %v", err)
		}
	}
	d := a.database(t, e)
	run := faults.Run{Event: e.Name, Number: number, At: time.Now().UTC(), Problems: []string{unfinished}}
	defer func() {
		if len(run.Problems) > 0 || t.Failed() {
			shared.tell(context.WithoutCancel(t.Context()), t, d.key.Namespace)
			a.forget(t) // the next event gets a new one
		}
		if a.keep {
			if err := a.book.Keep(run); err != nil {
				t.Error(err)
			}
		}
	}()
	e.run(t, d, &run)
	for _, p := range run.Problems {
		t.Error(p)
	}
}

// figureOf is the fewest runs whose 95th percentile is worth keeping.
const figureOf = 20

// report draws all runs that the book holds, and records the figures of the events that have had all theirs,
// twenty at the least.
func (a *arena) report(t *testing.T, chosen []event, wanted int) {
	t.Helper()
	all := map[string][]faults.Run{}
	var events []faults.Event
	for _, e := range chosen {
		runs, err := a.book.Runs(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name], events = runs, append(events, e.Event)
		if len(runs) >= max(wanted, figureOf) {
			record(t, e.Figure(runs))
		}
	}
	page, err := faults.Report(events, all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.book.Dir+"/report.md", []byte(page), 0o644); err != nil { //nolint:gosec // a report is public
		t.Fatal(err)
	}
	t.Log("\n" + page)
}
