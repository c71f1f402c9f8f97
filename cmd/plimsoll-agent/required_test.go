package main

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// TestRequiredHoldsWhileTheOnlyReplicaIsCopied: the log that the only replica needs is gone, so that it is taken out of the voters and
// copied anew. No write is acknowledged that the leader alone holds, though it is the only voter meanwhile.
func TestRequiredHoldsWhileTheOnlyReplicaIsCopied(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 2)
	d.change = func(a *engine.Aim) {
		a.Files[postgres.FileParameters] += "max_slot_wal_keep_size = '32MB'\nwal_keep_size = '0'\nmax_wal_size = '32MB'\nmin_wal_size = '32MB'\n"
	}
	for _, m := range d.members {
		m.start()
	}
	d.until("both are whole", 60*time.Second, d.whole)
	lead, follower := d.roles(t)
	w := d.writing()
	d.until("writes flow", 10*time.Second, w.now)
	receiver := follower.child(t, "walreceiver")
	if err := syscall.Kill(receiver, syscall.SIGSTOP); err != nil { // its agent goes on, and the leader leads
		t.Fatal(err)
	}
	gone := time.Now()
	c := must(d.connect(t.Context(), lead.pod.Address))(t)
	filled := make(chan error, 1)
	go func() {
		// As no transaction, so that nobody waits for it; the checkpoints that this brings about take away what the replica needs.
		_, err := c.Exec(t.Context(), "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)), pg_sleep(0.03) FROM generate_series(1, 300)")
		_ = syscall.Kill(receiver, syscall.SIGCONT) // it may have been replaced already
		filled <- errors.Join(err, c.Close(context.Background()))
	}()
	lone, copied := false, false
	begin := time.Now()
	d.until("both are whole", 2*time.Minute, func() error {
		r, err := lead.report()
		if err != nil {
			return err
		}
		if len(r.Voters) == 1 {
			lone = true
			if r.SyncWanted != 1 {
				t.Errorf("the only voter has its writes wait for %d", r.SyncWanted)
			}
		}
		if f, err := follower.report(); err == nil && f.State == "cloning" {
			if w.flows(gone.Add(2*time.Second)) == nil && r.InSync == 0 {
				t.Error("a write was acknowledged that the leader alone holds")
			}
		}
		copied = copied || strings.Count(follower.lastLog(1<<20), "copied the primary's data") > 1
		if !copied {
			return errors.New("it is not copied anew yet")
		}
		return d.whole()
	})
	if err := <-filled; err != nil {
		t.Error(err)
	}
	if !lone || !copied {
		t.Errorf("the leader was the only voter: %v, the replica was copied anew: %v; nothing was tested", lone, copied)
	}
	t.Logf("whole again after %s", time.Since(begin).Round(time.Millisecond))
	d.until("writes flow", 10*time.Second, w.now)
	d.keeps(t, w.stop())
}
