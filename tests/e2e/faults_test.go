package e2e

import (
	"context"
	"errors"
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

// event is one way to hurt a Database. Every function may fail, and each gets a context that ends with the run.
type event struct {
	faults.Event
	// main events run once in every `make test`; the others only in `make bench-ha`.
	main bool
	// spec changes the Database that it needs, and kind names what it becomes: events of one kind share one.
	spec func(*v1.Database)
	kind string
	// loses says that the Database was asked not to wait for replicas: how much is lost is counted, and no failure.
	loses bool
	// before prepares what is no part of the fault; the clock does not run yet.
	before func(context.Context, *scene) error
	// amid changes the Database while everybody writes; the clock does not run yet either.
	amid func(context.Context, *scene) error
	// hurt is the fault, and mend its end, which comes when writes flow again and hold has passed.
	hurt, mend func(context.Context, *scene) error
	hold       time.Duration
	// calm says that nobody else may take over. Else somebody must, except where either is right.
	calm, either bool
	// anybody says that it is enough when a direct writer gets through: applications are cut off, too.
	anybody bool
	// patience until writes flow again, and recovery until the Database is ready after the mend; zero for the usual ones.
	patience, recovery time.Duration
	// after looks at what is special to the event, once the Database is ready.
	after func(context.Context, *scene) error
}

// unfinished is the problem of a run until it has ended.
const unfinished = "the run did not end: its log says where"

const (
	usualPatience = 30 * time.Second
	usualRecovery = 2 * time.Minute
)

// scene is a Database in the middle of an event.
type scene struct {
	*database
	w *witnesses
	// leader and replicas at the beginning, with their nodes; epoch and term of the leader.
	leader   v1.InstanceStatus
	replicas []v1.InstanceStatus
	epoch    int64
	term     int64
	// hurtAt is when the fault began.
	hurtAt time.Time
	// measure is what the event measures beside the gap.
	measure time.Duration
}

// TestFaults hurts a Database in every way of the table while applications write. With PLIMSOLL_FAULT_RUNS it is a benchmark that can be
// interrupted and goes on; else each main event happens once.
func TestFaults(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("PLIMSOLL_FAULT_RUNS"))
	if err != nil {
		runs = 0
	}
	a := &arena{t: t, book: faults.Book{Dir: os.Getenv("PLIMSOLL_FAULT_BOOK")}, keep: runs > 0}
	chosen, err := choose(append(mainEvents(), rareEvents()...), os.Getenv("PLIMSOLL_FAULT_EVENTS"), runs > 0)
	if err != nil {
		t.Fatal(err)
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

func choose(all []event, names string, everything bool) ([]event, error) {
	if names == "" {
		return slices.DeleteFunc(all, func(e event) bool { return !everything && !e.main }), nil
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
	book faults.Book
	keep bool
	made int
	d    *database
	kind string
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
	spec := orders(shared.named(a.t, fmt.Sprintf("e2e-faults-%d", a.made)), 3)
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
	if err := whole(t.Context()); err != nil {
		t.Fatalf("the cluster is not whole: %v", err)
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

// run the event on a Database. What goes wrong ends the run or is one of its problems.
func (e event) run(t *testing.T, d *database, run *faults.Run) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.awaitReady(usualRecovery)
	s := e.begin(ctx, t, d)
	s.hurtAt = time.Now()
	mended := false
	mend := func(ctx context.Context) error {
		if mended || e.mend == nil {
			return nil
		}
		mended = true
		return e.mend(ctx, s)
	}
	defer func() {
		if err := mend(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("mend: %v", err)
		}
		if slices.Contains(run.Problems, unfinished) {
			run.Gap = time.Since(s.hurtAt).Seconds() // at least
		}
	}()
	if err := e.hurt(ctx, s); err != nil {
		t.Fatalf("hurt: %v", err)
	}
	term := s.term
	if e.calm || e.either {
		term--
	}
	if !e.calm {
		got := s.w.flows(ctx, t, or(e.patience, usualPatience), s.hurtAt, term, e.anybody)
		t.Logf("%s writes on timeline %d %s after the event", got.Instance, got.Term, got.Ended.Sub(s.hurtAt).Round(time.Millisecond))
	}
	time.Sleep(time.Until(s.hurtAt.Add(e.hold)))
	if err := mend(ctx); err != nil {
		t.Fatalf("mend: %v", err)
	}
	run.Whole = e.recovers(s).Seconds()
	s.w.flows(ctx, t, or(e.patience, usualPatience), time.Now(), term, false)
	run.Problems = nil
	if e.after != nil {
		if err := e.after(ctx, s); err != nil {
			run.Problems = append(run.Problems, err.Error())
		}
	}
	e.account(ctx, t, s, run)
}

// recovers waits until status says that all is well again, and not still: it is a moment behind.
func (e event) recovers(s *scene) time.Duration {
	s.t.Helper()
	began := time.Now()
	return s.await(or(e.recovery, usualRecovery), "Database ready again", func(now *v1.Database) error {
		switch {
		case !e.calm && !e.either && now.Status.Epoch <= s.epoch:
			return fmt.Errorf("status tells of epoch %d still", now.Status.Epoch)
		case time.Since(began) < 2*time.Second:
			return errors.New("it may not have heard yet")
		}
		return ready(now)
	})
}

// begin looks at the Database, prepares, and starts the witnesses.
func (e event) begin(ctx context.Context, t *testing.T, d *database) *scene {
	t.Helper()
	s := &scene{database: d}
	if e.before != nil {
		if err := e.before(ctx, s); err != nil {
			t.Fatalf("prepare: %v", err)
		}
	}
	s.w = d.witness(ctx, t)
	s.w.flows(ctx, t, 15*time.Second, time.Now(), 0, false)
	if e.amid != nil {
		if err := e.amid(ctx, s); err != nil {
			t.Fatalf("prepare under writes: %v", err)
		}
	}
	// A while of undisturbed writes.
	s.term = s.w.flows(ctx, t, 15*time.Second, time.Now().Add(500*time.Millisecond), 0, false).Term
	s.hurtAt = time.Now()
	now, err := d.get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.epoch = now.Status.Epoch
	for _, i := range now.Status.Instances {
		if i.Name == now.Status.Leader {
			s.leader = i
		} else {
			s.replicas = append(s.replicas, i)
		}
	}
	if s.leader.Node == "" || len(s.replicas) == 0 {
		t.Fatalf("leader %q, instances %+v", now.Status.Leader, now.Status.Instances)
	}
	return s
}

// account for what was seen.
func (e event) account(ctx context.Context, t *testing.T, s *scene, run *faults.Run) {
	t.Helper()
	seen, err := s.w.stop()
	if err != nil {
		run.Problems = append(run.Problems, err.Error())
		return
	}
	lost, problems := s.w.verify(ctx, seen.all, e.loses)
	gaps := seen.apps
	if e.anybody {
		gaps = seen.all
	}
	run.Problems = append(run.Problems, problems...)
	run.Gap, run.Lost, run.Measure = gaps.LongestGap(s.hurtAt).Length().Seconds(), lost, s.measure.Seconds()
	second := seen.all.SecondWriters()
	run.Second, run.Stale = len(second), seen.all.Stale(seen.sights).Seconds()
	run.Acked, run.InDoubt, run.Refused = len(seen.all.Acks), len(seen.all.InDoubt), seen.all.Refused
	if run.Second > 0 {
		run.Problems = append(run.Problems, fmt.Sprintf("%d writes acknowledged by a second writer, the first %+v", len(second), second[0]))
	}
	now, err := s.get(ctx)
	if err != nil {
		run.Problems = append(run.Problems, err.Error())
		return
	}
	for _, h := range slices.Backward(now.Status.HandOvers) {
		if h.Epoch > s.epoch {
			run.Problems = append(run.Problems, e.untold(s, h, len(run.HandOvers) == 0)...)
			run.HandOvers = append(run.HandOvers, faults.HandOver{Epoch: h.Epoch, From: h.From, To: h.To, Cause: h.Cause, Why: h.Why, Millis: h.DurationMillis, Steps: told(h.Steps)})
		}
	}
	if n := seen.all.Between(s.hurtAt, time.Now().Add(time.Hour)).Hands(); e.calm && n > 0 {
		run.Problems = append(run.Problems, fmt.Sprintf("the writer changed %d times, and there was no reason", n))
	}
	t.Logf("gap %.3f s, ready again %.1f s after the mend, %d acknowledged, %d lost, %d in doubt, %d refused, %d second writers, stale reads for %.3f s, hand-overs %+v",
		run.Gap, run.Whole, run.Acked, run.Lost, run.InDoubt, run.Refused, run.Second, run.Stale, run.HandOvers)
}

// untold is what status should say of a change of hands, and does not.
func (e event) untold(s *scene, h v1.HandOver, first bool) []string {
	var missing []string
	if h.Cause == "" || len(h.Steps) < 2 {
		missing = append(missing, fmt.Sprintf("status says of epoch %d neither why nor when: %+v", h.Epoch, h))
	}
	if first && !e.either && h.From != s.leader.Name {
		missing = append(missing, fmt.Sprintf("status says that %q led before epoch %d, and it was %s", h.From, h.Epoch, s.leader.Name))
	}
	if !e.loses && h.LostBytes != nil && *h.LostBytes != 0 {
		missing = append(missing, fmt.Sprintf("status says that epoch %d lost %d bytes", h.Epoch, *h.LostBytes))
	}
	return missing
}

// told is a time line in words.
func told(steps []v1.HandOverStep) string {
	var all []string
	for _, s := range steps {
		all = append(all, fmt.Sprintf("%s +%d ms", s.Name, s.AfterMillis))
	}
	return strings.Join(all, ", ")
}

// report draws all runs that the book holds, and records the figures of the events that have had all theirs.
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
		if len(runs) >= wanted {
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

func or(d, usual time.Duration) time.Duration {
	if d == 0 {
		return usual
	}
	return d
}
