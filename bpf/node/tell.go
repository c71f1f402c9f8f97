package node

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/journal"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/query"
)

// toldMost bounds the batches that are read at one time; the ring holds fewer.
const toldMost = 16

// wanted is what is measured and told of a cgroup of a target.
func (n *Node) wanted(t *target, cgroup uint64) query.Target {
	of := query.Target{Cgroup: cgroup, Port: t.Port}
	if n.Tell == nil && !t.told {
		return of
	}
	slow := n.Slow
	of.Failed = n.Failed
	if own := t.Statements.Slow; own != nil {
		slow = own.Duration
	}
	if own := t.Statements.Failed; own != nil {
		of.Failed = *own
	}
	of.SlowNS = uint64(max(slow, 0))
	of.Literals = t.Statements.Literals && (of.SlowNS > 0 || of.Failed)
	return of
}

// tells hands over what is there; the next look logs what keeps it from that.
func (n *Node) tells() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unheard = n.tell()
}

// tell hands over statements that were slow or failed. Their texts are read after them: then each that was sent for them is known.
func (n *Node) tell() error {
	if n.family == nil || !n.listened() {
		return nil
	}
	all, err := n.heard()
	if err != nil || len(all) == 0 {
		return err
	}
	err = n.read()
	began, clock := boot()
	err = errors.Join(err, clock)
	var entries []journal.Entry
	watched := map[*target][]journal.Entry{}
	for _, e := range all {
		t := n.cgroups[e.Key.Cgroup]
		if t == nil || clock != nil {
			n.untold++
			continue
		}
		one := n.entry(t, e, began.Add(e.At))
		entries = append(entries, one)
		if t.told {
			watched[t] = append(watched[t], one)
		}
	}
	if n.Tell != nil {
		n.Tell(entries)
	}
	return errors.Join(err, n.passOn(watched))
}

// heard is what the kernel told since the last time.
func (n *Node) heard() (all []event.Event, err error) {
	for range toldMost {
		batch, err := n.family.Told()
		if err != nil {
			return nil, err
		}
		if len(batch.Events) == 0 {
			break
		}
		all = append(all, batch.Events...)
	}
	return all, nil
}

// boot is when the clock that the kernel's side reads was 0, by the one that people read.
func boot() (time.Time, error) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &since); err != nil {
		return time.Time{}, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return time.Now().Add(-time.Duration(since.Nano())), nil
}

func (n *Node) entry(t *target, e event.Event, end time.Time) journal.Entry {
	j := journal.Entry{
		Kind: e.Kind, End: end, Latency: e.Latency, Queue: e.Queue, Service: e.Service, Transfer: e.Transfer,
		Origin: journal.Origin{
			Instance: t.owner(), Pod: t.Container.Pod, Container: t.Container.ID, Address: t.Address, Port: t.Port, Node: n.Name,
		},
		Role: t.Role, Session: n.session(t.Engine, e.Key.Who), Nth: e.Key.Nth, State: e.Key.State,
		Rows: e.Rows, BytesIn: e.BytesIn, BytesOut: e.BytesOut, Client: e.Client, Local: e.Local,
	}
	if q, known := n.names.Of(e.Key); known {
		j.Query = q.ID
		if e.Key.State.Parsed() {
			j.Text, j.Cut = q.Text, q.Cut
		}
	}
	// What was told before literals were asked for no more is told without them.
	if e.Text != "" && t.Statements.Literals {
		j.Text, j.Literal, j.Cut = strings.ToValidUTF8(e.Text, "\ufffd"), true, e.Whole > len(e.Text)
	}
	return j
}
