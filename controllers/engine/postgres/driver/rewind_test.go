package driver

import (
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestAPrimaryWithoutAFreeSlotIsNoReasonToCopy: the old primary crashed with a transaction prepared, and the new one has no connection
// to spare.
func TestAPrimaryWithoutAFreeSlotIsNoReasonToCopy(t *testing.T) {
	c := newCluster(t)
	c.db.Spec.Parameters["max_connections"], c.db.Spec.Parameters["max_prepared_transactions"] = "20", "10"
	p := c.primary(false)
	p.exec("CREATE TABLE a (id int)")
	m := c.replica(p, false)
	m.stop()
	s, err := p.client(c.ctx(), "app", password)
	must(t, err)
	defer closeConn(s)
	for _, sql := range []string{"BEGIN", "INSERT INTO a VALUES (7)", "PREPARE TRANSACTION 'x'"} {
		_, err = s.Exec(c.ctx(), sql)
		must(t, err)
	}
	p.kill()
	before, err := os.Stat(p.d.data())
	must(t, err)
	next := c.role(m, engine.Replica, 2, nil)
	m.start(next)
	m.become(next)
	promoted := c.role(m, engine.Primary, 2, nil)
	promoted.Timeline = 2
	m.become(promoted)
	m.exec("INSERT INTO a VALUES (-1)")
	var open []*pgx.Conn
	for len(open) < 30 {
		s, err := m.client(c.ctx(), "app", password)
		if err != nil {
			break
		}
		open = append(open, s)
	}
	back := c.role(p, engine.Replica, 2, m)
	if s := p.plan(back); s != StepRewind {
		t.Fatalf("plan %s, want a rewind", s)
	}
	if err := p.d.Prepare(c.ctx(), back); err == nil {
		t.Fatal("it is prepared without a connection")
	}
	if s := p.plan(back); s != StepRewind || exists(p.d.rewind()) {
		t.Fatalf("the data was given up for want of a connection; plan %s", s)
	}
	// One that was free a moment before: pg_rewind itself finds none.
	var passes *passing
	if err := p.d.rewindNow(c.ctx(), back); !errors.As(err, &passes) {
		t.Errorf("pg_rewind says %v", err)
	}
	if s := p.plan(back); s != StepRewind {
		t.Errorf("after a rewind that could not begin: plan %s", s)
	}
	for _, s := range open {
		closeConn(s)
	}
	p.start(back)
	if after, err := os.Stat(p.d.data()); err != nil || !os.SameFile(before, after) {
		t.Errorf("the data was copied, not rewound (%v)", err)
	}
	p.become(back)
	p.follows(m)
}
