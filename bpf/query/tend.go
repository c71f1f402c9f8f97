package query

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// What the program tend does: enum tend of tend.h.
const (
	tendWatch = iota
	tendUnwatch
	tendOffer
	tendRetire
	tendSessions
	tendTold
)

// What a place is: enum life of types.h.
const (
	vacant = iota
	live
	leaving
)

// tended is what user space remembers of places, so that it can take them back.
type tended struct {
	watched map[uint64]bool // cgroups
	places  []place
	pass    uint64 // over Counts
	round   uint64 // of Tend
	learner learner
	inner   *ebpf.Map // of barrier
	barrier *ebpf.Map
}

// place is what is known of one place.
type place struct {
	generation uint32 // how often it was taken back
	told       bool   // what was counted in it to the end has been read
	sum        uint64 // as it was in the last pass
	changed    uint64 // the pass in which it was last seen to change
}

func (t *tended) open(places uint32) error {
	t.places = make([]place, places)
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	var err error
	if t.inner, err = ebpf.NewMap(inner); err != nil {
		return fmt.Errorf("make the barrier of the statement probe: %w", err)
	}
	if t.barrier, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner}); err != nil {
		return fmt.Errorf("make the barrier of the statement probe: %w", err)
	}
	return nil
}

func (t *tended) close() error {
	return errors.Join(t.barrier.Close(), t.inner.Close())
}

// await returns when every program that runs now has ended: the kernel lets whoever changes a map of maps wait for that.
func (t *tended) await() error {
	if err := t.barrier.Put(uint32(0), t.inner); err != nil {
		return fmt.Errorf("wait for the programs of the statement probe: %w", err)
	}
	return nil
}

// tend runs the program that changes the memory of the family, and gives back its answer: 0 if there was nothing to do.
func (f *Family) tend(what uint64, args ...uint64) (uint32, error) {
	context := [5]uint64{what}
	copy(context[1:], args)
	done, err := f.kernel.Tend.Run(&ebpf.RunOptions{Context: context})
	if err != nil {
		return 0, fmt.Errorf("change the memory of the statement probe: %w", err)
	}
	return done, nil
}

// Watch measures a container from now on. Called again it changes the bounds. It fails while all places are taken; Tend gives some back.
func (f *Family) Watch(t Target) error {
	done, err := f.tend(tendWatch, t.Cgroup, uint64(t.Port), t.SlowNS, t.tells())
	if err == nil && done == 0 {
		err = fmt.Errorf("no place left: %d of %d containers are measured, and %d of %d places for counts are taken: try again after Tend",
			len(f.tended.watched), f.kernel.Targets.MaxEntries(), len(f.tended.places)-f.room(), len(f.tended.places))
	}
	if err != nil {
		return fmt.Errorf("measure cgroup %d: %w", t.Cgroup, err)
	}
	f.tended.watched[t.Cgroup] = true
	return nil
}

// What a target tells: TELL_FAILED and TELL_LITERALS of types.h.
const (
	tellFailed = 1 << iota
	tellLiterals
)

func (t Target) tells() (bits uint64) {
	if t.Failed {
		bits |= tellFailed
	}
	if t.Literals {
		bits |= tellLiterals
	}
	return bits
}

// Unwatch measures a container no longer. What was counted is told by the next pass over Counts for the last time, and then Tend gives the places
// back. A connection is forgotten when it next speaks, or when its process ends.
func (f *Family) Unwatch(cgroup uint64) error {
	if _, err := f.tend(tendUnwatch, cgroup); err != nil {
		return fmt.Errorf("measure cgroup %d no longer: %w", cgroup, err)
	}
	delete(f.tended.watched, cgroup)
	return nil
}

// room is how many places are vacant or will soon be.
func (f *Family) room() (n int) {
	for i := range f.counted.Values {
		if f.life(i) != live {
			n++
		}
	}
	return n
}

func (f *Family) life(i int) uint64 { return atomic.LoadUint64(&f.counted.Values[i].Live) }

// Tend gives back what nobody uses: places of containers that are measured no longer, sessions that are over, and, when less than a quarter
// of all places is left, those whose counts have not changed for longest. It learns texts of statements that were prepared before anybody looked. Call it after each pass over Counts: a place is given back only when
// a pass has told what was counted in it to the end. It waits some milliseconds for programs under way.
func (f *Family) Tend() error {
	t := &f.tended
	for i := range t.places {
		if p := &t.places[i]; f.life(i) == leaving && p.told {
			if _, err := f.tend(tendOffer, uint64(i)); err != nil {
				return err
			}
			*p = place{generation: p.generation + 1}
		}
	}
	var retired bool
	for _, i := range f.unused() {
		done, err := f.tend(tendRetire, uint64(i))
		if err != nil {
			return err
		}
		retired = retired || done > 0
	}
	if retired {
		if err := t.await(); err != nil {
			return err
		}
	}
	t.round++
	const most = 128 // times 32 sessions are all that there may be
	for range most {
		n, err := f.tend(tendSessions, t.round)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	return f.learn()
}

// unused are the places to take back.
func (f *Family) unused() []int {
	t := &f.tended
	var gone, idle []int
	for i := range t.places {
		if f.life(i) != live {
			continue
		}
		key := f.counted.Values[i].Key // which does not change while it lives
		rest := key.Print == 0 && key.Who == 0 && key.Nth == 0 && key.Code <= uint32(event.NoState)
		changed := t.places[i].changed
		switch {
		case !t.watched[key.Cgroup]:
			gone = append(gone, i)
		case !rest && changed > 0 && changed+2 <= t.pass:
			idle = append(idle, i)
		}
	}
	need := len(t.places)/4 - f.room() - len(gone)
	if need <= 0 {
		return gone
	}
	slices.SortFunc(idle, func(a, b int) int { return cmp.Compare(t.places[a].changed, t.places[b].changed) })
	return append(gone, idle[:min(need, len(idle))]...)
}

// learner says when to take the texts that servers report, which costs them half a microsecond for every message: for a few rounds when
// statements come whose text is not known. Some are never learned (in pipelines), so it rests afterwards.
type learner struct {
	unknown uint64 // statements of that kind so far
	left    int    // rounds to learn in; below 0 rounds to rest in
}

// Rounds of learning, and of rest thereafter.
const learnRounds, restRounds = 4, 60

// next says whether to learn until the next round.
func (l *learner) next(unknown uint64) bool {
	more := unknown != l.unknown
	l.unknown = unknown
	switch {
	case l.left < 0:
		l.left++
		return false
	case !more:
		l.left = 0
		return false
	case l.left == 1:
		l.left = 1 - restRounds // this one is the first
		return false
	case l.left == 0:
		l.left = learnRounds
	default:
		l.left--
	}
	return true
}

func (f *Family) learn() error {
	var program *ebpf.Program
	const prepared = 6 // LOST_PREPARED of types.h
	if f.tended.learner.next(atomic.LoadUint64(&f.losses.Values[prepared])) {
		program = f.kernel.TextReported
	}
	var errs []error
	for _, b := range f.binaries {
		errs = append(errs, b.learn(program))
	}
	return errors.Join(errs...)
}
