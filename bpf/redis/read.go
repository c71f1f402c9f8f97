package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// batchMost bounds how many events are read at one time.
const batchMost = 1024

// Read takes the events that are there, at most a thousand.
func (f *Family) Read() (event.Batch, error) {
	var batch event.Batch
	// The kernel's side wakes nobody: whoever reads comes by, finds what there is, and goes.
	f.records.SetDeadline(time.Unix(0, 1))
	for len(batch.Events) < batchMost {
		record, err := f.records.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return batch, nil
		}
		if err != nil {
			return batch, fmt.Errorf("read the ring of commands: %w", err)
		}
		e, err := decode(record.RawSample, f.names)
		if err != nil {
			return batch, err
		}
		batch.Events = append(batch.Events, e)
	}
	return batch, nil
}

// ForgetTexts lets each text be told again when it next comes, because the reader has forgotten all but those of these prints.
func (f *Family) ForgetTexts(but iter.Seq[uint64]) error {
	f.round++
	for of := range but {
		if _, err := f.tend(tendTold, of, uint64(f.round)); err != nil {
			return err
		}
	}
	if err := f.kernel.TextRound.Set(f.round); err != nil {
		return fmt.Errorf("let texts be told again: %w", err)
	}
	return nil
}

// decode makes an event of a record of the ring.
func decode(raw []byte, names []string) (event.Event, error) {
	var r kernelRecord
	n, err := binary.Decode(raw, binary.NativeEndian, &r)
	if err != nil {
		return event.Event{}, fmt.Errorf("decode a record of %d bytes: %w", len(raw), err)
	}
	rest := raw[n:]
	if r.Kind < uint32(event.Text) || r.Kind > uint32(event.Failed) {
		return event.Event{}, fmt.Errorf("decode a record: kind %d is not known: the programs in the kernel are of another version", r.Kind)
	}
	if uint64(r.TextSize) > uint64(len(rest)) || r.TextSize > r.TextWhole || int(r.Command) >= len(names) {
		return event.Event{}, fmt.Errorf("decode a record: a key of %d bytes, of %d, of command %d is said to be in %d", r.TextSize, r.TextWhole, r.Command, len(rest))
	}
	e := event.Event{
		Kind: event.Kind(r.Kind), PID: r.Pid, Key: keyOf(r.Key), At: time.Duration(r.AtNs), Latency: time.Duration(r.LatencyNs),
		BytesIn: r.BytesIn, BytesOut: r.BytesOut,
	}
	if e.Kind != event.Text {
		return e, nil
	}
	e.Normal, e.Text = true, names[r.Command]
	if r.Keyed != 0 {
		e.Text += " " + pattern(string(rest[:r.TextSize]), int(r.TextWhole))
	}
	e.Whole = len(e.Text)
	return e, nil
}

// ours marks the places of this family: those of bpf/query are smaller, and nobody may take one for another.
const ours = 1 << 31

func keyOf(k kernelKey) event.Key {
	return event.Key{Cgroup: k.Cgroup, Print: k.Print, Who: k.Who, Nth: k.Nth, State: event.State(k.Code)}
}

// Counts are all that was counted so far, in no order. They are read while the kernel goes on counting: each number is right at its own moment.
// A pass is one use of what it returns.
func (f *Family) Counts() iter.Seq[event.Counts] {
	return func(yield func(event.Counts) bool) {
		f.tended.pass++
		for i := range f.counted.Values {
			from, p := &f.counted.Values[i], &f.tended.places[i]
			// The kernel's side sets live after the key.
			life := f.life(i)
			if life == vacant {
				continue
			}
			to := event.Counts{
				Place: uint64(p.generation)<<32 | ours | uint64(i), Key: keyOf(from.Key), Calls: atomic.LoadUint64(&from.Calls), Rows: atomic.LoadUint64(&from.Rows),
				BytesIn: atomic.LoadUint64(&from.BytesIn), BytesOut: atomic.LoadUint64(&from.BytesOut),
				Latency: duration(&from.LatencyNs), Queue: duration(&from.QueueNs), Service: duration(&from.ServiceNs), Transfer: duration(&from.TransferNs),
			}
			for slot := range from.Slots {
				to.Slots[slot] = atomic.LoadUint64(&from.Slots[slot])
			}
			if sum := to.Calls + to.Rows; p.changed == 0 || sum != p.sum {
				p.sum, p.changed = sum, f.tended.pass
			}
			p.told = life == leaving
			if !yield(to) {
				return
			}
		}
	}
}

func duration(ns *uint64) time.Duration { return time.Duration(atomic.LoadUint64(ns)) }

// reasons are enum lost of types.h, as labels of a metric.
func reasons() []string {
	return []string{
		"connections", "unsynced", "framing", "faults", "keys", "units", "texts", "records", "aborted", "sessions", "uncounted",
	}
}

// Lost counts what was lost, by reason. "missed" are calls of a program that the kernel left out because another was at work on its CPU.
func (f *Family) Lost() (map[string]uint64, error) {
	lost := map[string]uint64{}
	for i, reason := range reasons() {
		lost[reason] = atomic.LoadUint64(&f.losses.Values[i])
	}
	for name, p := range f.programs() {
		stats, err := p.Stats()
		if err != nil {
			return nil, fmt.Errorf("ask how often %s was missed: %w", name, err)
		}
		lost["missed"] += stats.RecursionMisses
	}
	return lost, nil
}

// programs are those that servers run.
func (f *Family) programs() map[string]*ebpf.Program {
	k := &f.kernel
	return map[string]*ebpf.Program{
		"read begins": k.ReadBegins, "read ends": k.ReadEnds, "write begins": k.WriteBegins, "writev begins": k.WritevBegins, "write ends": k.WriteEnds,
		"accepted": k.Accepted, "closes": k.Closes, "sealed read begins": k.SealedReadBegins, "sealed read ends": k.SealedReadEnds,
		"sealed write begins": k.SealedWriteBegins, "sealed write ends": k.SealedWriteEnds, "process exits": k.ProcessExits,
	}
}

// text is what a C string holds.
func text(b []int8) string {
	var s []byte
	for _, c := range b {
		if c == 0 {
			break
		}
		s = append(s, byte(c))
	}
	return string(s)
}
