package driver

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestAPromotionThatWasCutOffDoesNotKeepAMemberDown: it had reserved a timeline and ended before the server was promoted.
func TestAPromotionThatWasCutOffDoesNotKeepAMemberDown(t *testing.T) {
	c := newCluster(t)
	p := c.primary(false)
	m := c.replica(p, false)
	n := c.replica(p, false)
	p.kill()
	n.become(c.role(n, engine.Replica, 2, nil))
	s, err := n.d.session(c.ctx())
	must(t, err)
	must(t, n.d.reserve(c.ctx(), s, 3))
	if !exists(n.d.historyFile(2)) {
		t.Fatal("nothing was reserved")
	}
	n.kill()
	m.become(c.role(m, engine.Replica, 2, nil))
	promoted := c.role(m, engine.Primary, 2, nil)
	promoted.Timeline = 4
	m.become(promoted)
	if !exists(m.d.historyFile(2)) || !exists(m.d.historyFile(3)) {
		t.Error("the new primary has no history of the timelines below its own, and replicas ask for them")
	}
	m.exec("CREATE TABLE a (id int)")
	back := c.role(n, engine.Replica, 2, m)
	n.start(back)
	n.become(back)
	n.follows(m)
	n.stop() // and again, with the placeholders of the timelines that it has passed
	n.start(back)
	n.become(back)
	n.follows(m)
}
