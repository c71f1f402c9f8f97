package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

const (
	// lookEvery is how often the vital signs are looked at.
	lookEvery = 200 * time.Millisecond
	// lookMost is what one look counts for at most: an agent that got no processor for longer knows nothing about that time.
	lookMost = 2 * lookEvery
	// volumeEvery is the pause between two durable writes, and volumePatience how long one may hang without any other write of the
	// volume's device having come to its end.
	volumeEvery    = time.Second
	volumePatience = 4 * time.Second
	// answerEvery is the pause between two greetings of the server, and answerPatience how long one may go unanswered by a server that
	// computes nothing. One that computes is slow and may take answerMost.
	answerEvery    = 3 * time.Second
	answerLimit    = 1500 * time.Millisecond
	answerPatience = 3 * time.Second
	answerMost     = time.Minute
)

// sign is something that must go on happening. It is done in a goroutine of its own, which may hang in the kernel for ever, and
// watched from outside.
type sign struct {
	// words for people: what is the matter if it does not happen.
	words string
	every time.Duration
	// limit of one attempt, after which it is begun anew and counts as the same; zero for what cannot be called off.
	limit time.Duration
	// do it once. An error that hurts counts as if it hung; any other says nothing.
	do    func(ctx context.Context) error
	hurts func(error) bool
	// effort is a number that changes while whoever is asked still works, and false if that cannot be known.
	effort func() (uint64, bool)
	// patience without a change of effort, and most with it; most zero is without end.
	patience, most time.Duration

	began  atomic.Int64 // when the attempt under way began; zero if none is
	failed atomic.Bool  // the last attempt came to an end that hurts

	// Of the watcher alone.
	seen   int64
	still  time.Duration // since when nothing moved
	waited time.Duration // since the attempt began
	last   uint64
}

// run does it again and again.
func (s *sign) run(ctx context.Context, clock lease.Clock) {
	for {
		s.began.Store(int64(clock.Now()))
		err := s.once(ctx)
		s.failed.Store(err != nil && s.hurts != nil && s.hurts(err))
		s.began.Store(0)
		pause := time.NewTimer(s.every)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// once does it until it was not too slow: whoever is asked again and again is not judged by one answer that got lost.
func (s *sign) once(ctx context.Context) error {
	if s.limit == 0 {
		return s.do(ctx)
	}
	for {
		asking, cancel := context.WithTimeout(ctx, s.limit)
		err := s.do(asking)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// look says what is the matter, or "". Passed is how much time the look stands for.
func (s *sign) look(passed time.Duration) string {
	began := s.began.Load()
	bad := s.failed.Load()
	if began == 0 && !bad || began != 0 && began != s.seen && !bad {
		s.seen, s.still, s.waited = began, 0, 0
		if s.effort != nil {
			s.last, _ = s.effort()
		}
		return ""
	}
	s.seen = began
	s.still += passed
	s.waited += passed
	if s.effort != nil && !bad {
		if now, known := s.effort(); known && now != s.last {
			s.last, s.still = now, 0
		}
	}
	if s.still >= s.patience || s.most > 0 && s.waited >= s.most {
		return fmt.Sprintf("%s for %s", s.words, s.waited.Round(time.Second))
	}
	return ""
}

// vitals watch the signs of one member.
type vitals struct {
	clock lease.Clock
	signs []*sign
	// told which signs fail, by their places, and why; "" for those that are well.
	told func(why []string)

	failing []string
}

// signs of life of this member: each volume takes writes, and the server answers.
func (a *Agent) signs(e Engine) *vitals {
	v := &vitals{clock: a.clock}
	for _, volume := range []struct{ dir, words string }{
		{a.cfg.StateDir, "the data volume has taken no write"}, {a.cfg.WALDir, "the volume of the write-ahead log has taken no write"},
	} {
		if _, err := os.Stat(volume.dir); err != nil {
			continue // the log has no volume of its own
		}
		v.signs = append(v.signs, &sign{
			words: volume.words, every: volumeEvery, patience: volumePatience,
			do: (&pulse{dir: volume.dir}).beat, hurts: broken, effort: deviceOf(volume.dir).writes,
		})
	}
	volumes := len(v.signs)
	pid := func() int { return a.keeper.told().PID }
	if e.Greet != nil {
		v.signs = append(v.signs, &sign{
			words: "the server has answered nobody", every: answerEvery, limit: answerLimit, patience: answerPatience, most: answerMost,
			do: e.Greet, effort: func() (uint64, bool) { return computed(pid()) },
		})
	}
	v.told = func(why []string) {
		volume := strings.Join(slices.DeleteFunc(slices.Clone(why[:volumes]), func(s string) bool { return s == "" }), "; ")
		if volume != a.ailment {
			a.log.Warn("vital signs", "volumes", volume)
			a.ailment = volume
			a.sampler.ail(volume)
			a.reporter.ail(volume)
		}
		if len(why) > volumes && why[volumes] != "" {
			a.keeper.freeze(pid())
		}
	}
	return v
}

// run watches until the context ends. Signs that hang are left behind: they end when the kernel lets them.
func (v *vitals) run(ctx context.Context) {
	v.failing = make([]string, len(v.signs))
	var doing sync.WaitGroup
	for _, s := range v.signs {
		doing.Go(func() { s.run(ctx, v.clock) })
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for last := v.clock.Now(); ; {
		select {
		case <-ctx.Done():
			v.leave(&doing)
			return
		case <-tick.C:
		}
		now := v.clock.Now()
		v.look(min(now.Sub(last), lookMost))
		last = now
	}
}

func (v *vitals) look(passed time.Duration) {
	changed := false
	for i, s := range v.signs {
		why := s.look(passed)
		if (why != "") != (v.failing[i] != "") {
			v.failing[i], changed = why, true
		}
	}
	if changed {
		v.told(v.failing)
	}
}

// leave gives the signs a moment to end.
func (v *vitals) leave(doing *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		doing.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Second):
	}
}
