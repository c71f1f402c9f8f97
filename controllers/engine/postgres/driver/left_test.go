package driver

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestAFormerPrimaryThatIsBackBeforeThePromotionLeavesNothing: its log is a part of the winner's, which it follows at once.
func TestAFormerPrimaryThatIsBackBeforeThePromotionLeavesNothing(t *testing.T) {
	c := newCluster(t)
	p := c.primary(false)
	p.exec("CREATE TABLE a (id int)")
	m := c.replica(p, false)
	m.follows(p)
	p.kill()
	m.become(c.role(m, engine.Replica, 1, nil)) // it receives no more
	p.start(c.role(p, engine.Replica, 1, nil))
	p.become(c.role(p, engine.Replica, 2, m))
	promoted := c.role(m, engine.Primary, 2, nil)
	promoted.Timeline = 2
	m.become(promoted)
	m.exec("INSERT INTO a VALUES (1)")
	p.follows(m)
	if left := p.report().Left; left == nil || !left.Known || left.Commits != 0 || left.Bytes != 0 {
		t.Errorf("it left %+v, want nothing, and known to be so", left)
	}
}

// TestAFormerPrimaryTellsWhatItLeaves: rows that only it had are commits behind the fork, and no rows are no commits, whatever else it wrote.
func TestAFormerPrimaryTellsWhatItLeaves(t *testing.T) {
	for sentence, row := range map[string]struct {
		alone   func(p *member)
		commits int64
	}{
		"it committed what its successor lacks": {func(p *member) {
			p.exec("INSERT INTO a VALUES (1)")
			p.exec("INSERT INTO a VALUES (2)")
		}, 2},
		"it committed a lot": {func(p *member) {
			p.exec("DO $$ BEGIN FOR i IN 1..2000 LOOP INSERT INTO a VALUES (i); COMMIT; END LOOP; END $$")
		}, 2000},
		"it wrote log, and committed nothing": {func(p *member) { must(t, p.d.Checkpoint(p.c.ctx())) }, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := newCluster(t)
			p := c.primary(false)
			p.exec("CREATE TABLE a (id int)")
			m := c.replica(p, false)
			m.follows(p)
			m.become(c.role(m, engine.Replica, 1, nil)) // it receives no more
			row.alone(p)
			p.kill()
			promoted := c.role(m, engine.Primary, 2, nil)
			promoted.Timeline = 2
			m.become(promoted)
			m.exec("INSERT INTO a VALUES (-1)")
			back := c.role(p, engine.Replica, 2, m)
			p.start(back)
			p.become(back)
			p.follows(m)
			left := p.report().Left
			if left == nil || !left.Known || left.Timeline != 1 || left.Commits != row.commits || (left.Bytes > 0) != (row.commits > 0) {
				t.Fatalf("it left %+v, want %d commits", left, row.commits)
			}
			t.Logf("%d commits in %d bytes", left.Commits, left.Bytes)
			if m.report().Left != nil {
				t.Error("who led on left nothing, and yet tells of it")
			}
			again := c.role(p, engine.Primary, 3, nil)
			again.Timeline = 3
			m.kill()
			p.become(again)
			if left := p.report().Left; left != nil {
				t.Errorf("after it led again it tells of %+v", left)
			}
		})
	}
}
