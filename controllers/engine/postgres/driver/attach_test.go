package driver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// winnerOf a hand-over: a replica whose primary has stopped, and another replica of it.
func winnerOf(t *testing.T, write func(p, winner, other *member)) (c *cluster, winner, other *member) {
	t.Helper()
	c = newCluster(t)
	p := c.primary(false)
	p.exec("CREATE TABLE a (id int)")
	winner, other = c.replica(p, false), c.replica(p, false)
	write(p, winner, other)
	p.kill()
	for _, m := range []*member{winner, other} {
		m.become(c.role(m, engine.Replica, 2, nil))
	}
	return c, winner, other
}

func leads(c *cluster, m, counted *member) engine.Role {
	r := c.role(m, engine.Primary, 2, nil)
	r.Timeline, r.SyncCount, r.SyncPeers = 2, 1, []string{counted.name}
	return r
}

func TestAReplicaAttachesToTheWinnerBeforeItsPromotion(t *testing.T) {
	c, winner, other := winnerOf(t, func(p, winner, other *member) {
		p.exec("INSERT INTO a VALUES (1)")
		winner.follows(p)
		other.follows(p)
	})
	attached := c.role(other, engine.Replica, 2, winner)
	other.become(attached)
	if ok, err := other.d.inForce(c.ctx(), other.d.kept, attached); err != nil || !ok {
		t.Errorf("the quick look at the settings says %v (%v)", ok, err)
	}
	c.until("it streams from the standby", func() error {
		if n := asSuper[int](winner, "postgres", "SELECT count(*)::int FROM pg_stat_replication WHERE application_name = '"+other.name+"'"); n != 1 {
			return fmt.Errorf("%d receivers: %v", n, other.log())
		}
		return nil
	})
	winner.become(leads(c, winner, other))
	begin := time.Now()
	winner.exec("INSERT INTO a VALUES (2)") // waits for the other
	t.Logf("the first commit after the promotion took %v", time.Since(begin))
	other.follows(winner)
	if got := query[int](other, "SELECT count(*) FROM a"); got != 2 {
		t.Errorf("it has %d rows", got)
	}
	c.until("every replica's log is kept", func() error {
		if n := asSuper[int](winner, "postgres", "SELECT count(*)::int FROM pg_replication_slots WHERE restart_lsn IS NOT NULL"); n != 2 {
			return fmt.Errorf("%d slots keep log", n)
		}
		return nil
	})
}

func TestAReplicaThatHoldsMoreThanTheWinnerWaitsForItsPromotion(t *testing.T) {
	c, winner, other := winnerOf(t, func(p, winner, other *member) {
		winner.become(p.c.role(winner, engine.Replica, 1, nil))
		p.exec("INSERT INTO a SELECT generate_series(1, 1000)")
		other.follows(p)
	})
	soon, cancel := context.WithTimeout(c.ctx(), 500*time.Millisecond)
	defer cancel()
	var problem *Problem
	if err := other.d.Become(soon, c.role(other, engine.Replica, 2, winner)); err == nil || errors.As(err, &problem) {
		t.Errorf("before the promotion: %v, want neither yes nor a verdict", err)
	}
	if r := other.report(); r.Receiving || Unfit(r) {
		t.Errorf("before the promotion: %+v", r)
	}
	other.stop()
	if step, err := other.d.Plan(c.ctx(), c.role(other, engine.Replica, 2, winner)); err == nil {
		t.Errorf("stopped, before the promotion: plans %s, want to wait", step)
	}
	alone := c.role(other, engine.Replica, 2, nil)
	other.start(alone)
	other.become(alone)
	winner.become(leads(c, winner, other))
	if err := other.d.Become(c.ctx(), c.role(other, engine.Replica, 2, winner)); !errors.As(err, &problem) || problem.Reason != "Forked" {
		t.Errorf("after the promotion: %v, want forked", err)
	}
}

func TestAReplicaWaitsForAWinnerThatHasNotReplayedAll(t *testing.T) {
	c, winner, other := winnerOf(t, func(p, winner, other *member) {
		p.exec("INSERT INTO a VALUES (1)")
		winner.follows(p)
		other.follows(p)
		asSuper[string](winner, "postgres", "SELECT pg_wal_replay_pause()::text")
		p.exec("INSERT INTO a SELECT generate_series(1, 1000)")
		c := p.c
		c.until("the winner has received more than it replayed", func() error {
			if asSuper[bool](winner, "postgres", "SELECT pg_last_wal_receive_lsn() > pg_last_wal_replay_lsn() AND pg_last_wal_receive_lsn() >= '"+
				asSuper[string](p, "postgres", "SELECT pg_current_wal_lsn()::text")+"'") {
				return nil
			}
			return errors.New("not yet")
		})
	})
	soon, cancel := context.WithTimeout(c.ctx(), 300*time.Millisecond)
	defer cancel()
	if err := other.d.Become(soon, c.role(other, engine.Replica, 2, winner)); err == nil {
		t.Error("it attached, and where the winner's timeline will begin is not certain")
	}
	asSuper[string](winner, "postgres", "SELECT pg_wal_replay_resume()::text")
	other.become(c.role(other, engine.Replica, 2, winner))
}
