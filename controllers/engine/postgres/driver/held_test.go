package driver

import (
	"errors"
	"fmt"
	"maps"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// TestAReplicaThatReplaysShowsWhatItHolds: what it acknowledged lies on its disk, and what it has replayed of it is less. A delay keeps
// it from replaying for as long as the test looks.
func TestAReplicaThatReplaysShowsWhatItHolds(t *testing.T) {
	c := newCluster(t)
	p := c.primary(false)
	m := c.replica(p, false)
	m.follows(p)
	delayed := func(r engine.Role, by string) engine.Role {
		r.Files = maps.Clone(r.Files)
		r.Files[postgres.FileParameters] += "recovery_min_apply_delay = '" + by + "'\n"
		return r
	}
	m.become(delayed(c.role(m, engine.Replica, 1, p), "1h"))
	p.exec("CREATE TABLE acknowledged (id int)")
	c.until("it has received all", func() error {
		if a, b := p.report().Position, m.report().Position; a != b {
			return fmt.Errorf("%+v of %+v", b, a)
		}
		return nil
	})
	want := m.report().Position
	p.kill()
	m.kill()
	silent := delayed(c.role(m, engine.Replica, 2, nil), "1h")
	m.start(silent)
	m.become(silent)
	check := func(when string) {
		t.Helper()
		r := m.report()
		if replayed := asSuper[string](m, "postgres", "SELECT pg_last_wal_replay_lsn()::text"); r.State != "running" || r.Receiving || replayed == want.Text {
			t.Fatalf("%s it is no replica that still replays: %+v, replayed %s", when, r, replayed)
		}
		if r.Position != want {
			t.Errorf("%s it shows %+v and holds %+v", when, r.Position, want)
		}
		s, err := m.d.session(c.ctx())
		must(t, err)
		if at, err := m.d.runningPlace(c.ctx(), s); err != nil || at.end != lsn(want.Bytes) {
			t.Errorf("%s it compares itself as one at %v (%v) and holds %+v", when, at.end, err, want)
		}
		if from, err := m.d.ask(c.ctx(), engine.Role{Upstream: m.address}); err != nil || from.settled {
			t.Errorf("%s others would take its place for final: %+v %v", when, from, err)
		}
	}
	check("after a start")
	pid := asSuper[int](m, "postgres", "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	c.until("all of the server has ended", func() error {
		if m.d.running() {
			return errors.New("it still runs")
		}
		return nil
	})
	m.kill()
	m.start(silent)
	m.become(silent)
	check("after a crash of one of its processes")
	m.become(delayed(silent, "0"))
	c.until("it has replayed all", func() error {
		if s := asSuper[string](m, "postgres", "SELECT pg_last_wal_replay_lsn()::text"); s != want.Text {
			return fmt.Errorf("%s of %s", s, want.Text)
		}
		return nil
	})
	if r := m.report(); r.Position != want {
		t.Errorf("after it has replayed all it shows %+v and holds %+v", r.Position, want)
	}
}
