package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestLossIsCounted kills a leader whose writes wait for nobody, once while its replicas receive nothing and once while all is well and
// nobody writes. What the old leader says to have left, is there if and only if acknowledged rows are missing.
func TestLossIsCounted(t *testing.T) {
	t.Parallel() // it waits more than it works
	if !alone(t, "^TestLossIsCounted$") {
		return
	}
	d := newDatabase(t, 3)
	d.change = func(a *engine.Aim) { a.Synchronous = "none" }
	for _, m := range d.members {
		m.start()
	}
	d.until("all three are whole", 60*time.Second, d.whole)
	for sentence, row := range map[string]struct{ deaf, loses bool }{
		"its replicas received nothing any more": {true, true},
		"its replicas had all":                   {false, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			d.t = t
			d.until("all three are whole", 60*time.Second, d.whole)
			lead, before, err := d.leader()
			if err != nil {
				t.Fatal(err)
			}
			w := d.write(before.Epoch << 32)
			d.until("writes flow", 10*time.Second, w.now)
			if row.deaf {
				// Of all that the servers' own user begins with the leader's port: replication, and no client.
				tool(t, fmt.Sprintf("add table ip deaf\nadd chain ip deaf out { type filter hook output priority 0; }\n"+
					"add rule ip deaf out meta skuid %d ip daddr %s tcp dport %d ct mark set 1\nadd rule ip deaf out ct mark 1 drop\n", lead.pod.UID, lead.pod.Address, d.port), "nft", "-f", "-")
				time.Sleep(2 * time.Second)
			}
			acked := w.stop()
			if !row.deaf {
				d.until("its replicas have all", 20*time.Second, func() error {
					n, err := lead.ask("SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= pg_current_wal_flush_lsn()")
					if err == nil && n != "2" {
						err = fmt.Errorf("%s have", n)
					}
					return err
				})
			}
			lead.kill()
			var r engine.Report
			d.until("another leads", 40*time.Second, func() error {
				now, told, err := d.leader()
				if r = told; err == nil && now == lead {
					return errors.New("nothing has changed yet")
				}
				return err
			})
			if r.HandOver == nil || r.HandOver.From != lead.name || r.HandOver.Synchronous != "none" || r.HandOver.Quiet == 0 || (r.HandOver.Ahead > 0) != row.loses {
				t.Errorf("the new leader knows %+v", r.HandOver)
			}
			missing := d.missing(t, acked)
			if row.deaf {
				tool(t, "delete table ip deaf\n", "nft", "-f", "-")
			}
			lead.start()
			d.until("the old leader has come back and told", 60*time.Second, func() error {
				back, err := lead.report()
				if err != nil {
					return err
				}
				if r = back; back.Left == nil {
					return errors.New("it says nothing")
				}
				return d.whole()
			})
			t.Logf("%d of %d acknowledged rows are missing; %+v is left, %d bytes were known", missing, len(acked), *r.Left, r.Left.Bytes)
			if missing > 0 != row.loses {
				t.Fatalf("%d rows are missing: nothing was tested", missing)
			}
			if !r.Left.Known || (r.Left.Bytes > 0) != (missing > 0) || r.Left.Commits < missing {
				t.Errorf("it left %+v, and %d acknowledged rows are missing", *r.Left, missing)
			}
		})
	}
}

// missing are the acknowledged rows that the leader does not have.
func (d *database) missing(t *testing.T, acked map[int64]time.Time) int64 {
	t.Helper()
	lead, _, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c := must(d.connect(ctx, lead.pod.Address))(t)
	defer func() { _ = c.Close(ctx) }()
	rows := must(c.Query(ctx, "SELECT id FROM ledger"))(t)
	have := map[int64]bool{}
	for _, id := range must(pgx.CollectRows(rows, pgx.RowTo[int64]))(t) {
		have[id] = true
	}
	lost := int64(0)
	for id := range acked {
		if !have[id] {
			lost++
		}
	}
	return lost
}
