package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

// event is one way to hurt a Database. Every function may fail, and each gets a context that ends with the run.
type event struct {
	faults.Event
	// main events happen once in every `make test`; the others in `make bench-ha` alone, which .github/workflows/nightly.yml calls for them.
	main bool
	// inside events touch nothing but the Database's own pods and volumes: other tests may go on beside them.
	inside bool
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
	// during looks at what is special while the fault lasts, once writes flow again.
	during func(context.Context, *scene) error
	// why are words of which status gives one for each change of hands; none for any.
	why []string
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
	// waits says that every commit waits for a replica. Where it does not always, status counts what was committed and told to nobody any more
	// as lost, too; whether an acknowledged write is, the ledger says.
	waits bool
	// hurtAt is when the fault began.
	hurtAt time.Time
	// measure is what the event measures beside the gap.
	measure time.Duration
	// restarts of containers before the fault, by pod and container.
	restarts map[string]int32
	// parts begin at these times, in an event that has some.
	parts []time.Time
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
		got := s.w.flows(ctx, t, cmp.Or(e.patience, usualPatience), s.hurtAt, term, e.anybody)
		t.Logf("%s writes on timeline %d %s after the event", got.Instance, got.Term, got.Ended.Sub(s.hurtAt).Round(time.Millisecond))
	}
	amiss := ""
	if e.during != nil {
		if err := e.during(ctx, s); err != nil {
			amiss = err.Error()
		}
	}
	time.Sleep(time.Until(s.hurtAt.Add(e.hold)))
	if err := mend(ctx); err != nil {
		t.Fatalf("mend: %v", err)
	}
	run.Whole = e.recovers(s).Seconds()
	s.w.flows(ctx, t, cmp.Or(e.patience, usualPatience), time.Now(), term, false)
	run.Problems = nil
	if amiss != "" {
		run.Problems = append(run.Problems, amiss)
	}
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
	return s.await(cmp.Or(e.recovery, usualRecovery), "Database ready again", func(now *v1.Database) error {
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
	s.waits = now.Status.Effective != nil && now.Status.Effective.Synchronous == v1.SynchronousRequired
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
	lost, undone, problems := s.w.verify(ctx, seen.all, e.loses)
	gaps := seen.apps
	if e.anybody {
		gaps = seen.all
	}
	run.Problems = append(run.Problems, problems...)
	run.Gap, run.Lost, run.Measure = gaps.LongestGap(s.hurtAt).Length().Seconds(), lost, s.measure.Seconds()
	for i, from := range s.parts {
		to := time.Now()
		if i+1 < len(s.parts) {
			to = s.parts[i+1]
		}
		run.Parts = append(run.Parts, gaps.Between(from, to).LongestGap(from).Length().Seconds())
	}
	second := seen.all.SecondWriters()
	run.Second, run.Stale = len(second), seen.all.Stale(seen.sights).Seconds()
	run.Acked, run.InDoubt, run.Refused = len(seen.all.Acks), len(seen.all.InDoubt), seen.all.Refused
	if run.Second > 0 {
		run.Problems = append(run.Problems, fmt.Sprintf("%d writes acknowledged by a second writer, the first %+v", len(second), second[0]))
	}
	changes, problems := s.changed(ctx, lost, undone)
	run.Problems = append(run.Problems, problems...)
	for _, h := range changes {
		run.Problems = append(run.Problems, e.untold(s, h, len(run.HandOvers) == 0)...)
		run.HandOvers = append(run.HandOvers, faults.HandOver{
			Epoch: h.Epoch, From: h.From, To: h.To, Cause: h.Cause, Why: h.Why, Lost: h.LostBytes, Millis: h.DurationMillis, Steps: told(h.Steps),
		})
	}
	if n := seen.all.Between(s.hurtAt, time.Now().Add(time.Hour)).Hands(); e.calm && n > 0 {
		run.Problems = append(run.Problems, fmt.Sprintf("the writer changed %d times, and there was no reason", n))
	}
	t.Logf("gap %.3f s, of the parts %.3f, ready again %.1f s after the mend, %d acknowledged, %d lost, %d in doubt, %d refused, %d second writers, stale reads for %.3f s, hand-overs %s",
		run.Gap, run.Parts, run.Whole, run.Acked, run.Lost, run.InDoubt, run.Refused, run.Second, run.Stale, run.HandOvers)
}

// toldWithin is how long after the return of the old leader status may take to say what was lost with it.
const toldWithin = 20 * time.Second

// changed are the changes of hands since the event, oldest first, once status says of each what it lost, and where that does not agree with
// what the ledger found.
func (s *scene) changed(ctx context.Context, lost, undone int) (all []v1.HandOver, problems []string) {
	err := until(ctx, toldWithin, func() error {
		now, err := s.get(ctx)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(slices.Clone(now.Status.HandOvers), func(h v1.HandOver) bool { return h.Epoch <= s.epoch })
		slices.Reverse(all)
		if problems = faults.Loss(all, lost, undone); len(problems) > 0 {
			return errors.New(problems[0])
		}
		return nil
	})
	if err != nil && len(problems) == 0 {
		problems = []string{err.Error()} // status was not to be had
	}
	return all, problems
}

// untold is what status should say of a change of hands, and does not.
func (e event) untold(s *scene, h v1.HandOver, first bool) []string {
	var missing []string
	switch {
	case h.Cause == "raise" && h.Why == "":
		missing = append(missing, fmt.Sprintf("status does not say what epoch %d was taken for", h.Epoch))
	case h.Cause == "raise": // the same leader went on: there are no steps
	case h.Cause == "" || len(h.Steps) < 2:
		missing = append(missing, fmt.Sprintf("status says of epoch %d neither why nor when: %+v", h.Epoch, h))
	}
	if len(e.why) > 0 && !slices.ContainsFunc(e.why, func(words string) bool { return strings.Contains(h.Why, words) }) {
		missing = append(missing, fmt.Sprintf("status says that %s ended before epoch %d because %q, and not one of %q", h.From, h.Epoch, h.Why, e.why))
	}
	// Where the same instance leads again, nobody is named.
	if first && !e.either && h.From != s.leader.Name && (h.From != "" || h.To != s.leader.Name) {
		missing = append(missing, fmt.Sprintf("status says that %q led before epoch %d, and it was %s", h.From, h.Epoch, s.leader.Name))
	}
	if !e.loses && s.waits && h.LostBytes != nil && *h.LostBytes != 0 {
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
