package driver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// TestANewPodStartsWithTheLastGoodConfiguration: the server does not start with a line of pg_hba.conf that it refuses.
func TestANewPodStartsWithTheLastGoodConfiguration(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	bad := func(line string) engine.Role {
		r := c.role(m, engine.Primary, 1, nil)
		r.Files[postgres.FileHBA] += line + "\n"
		return r
	}
	refuses := func(r engine.Role) {
		t.Helper()
		var p *Problem
		if err := m.d.Become(c.ctx(), r); !errors.As(err, &p) || p.Reason != "ConfigurationRefused" {
			t.Errorf("error %v", err)
		}
		if got := m.report(); got.Reason != "ConfigurationRefused" || got.Role != engine.Primary {
			t.Errorf("report %+v", got)
		}
	}
	newPod := func() {
		m.kill()
		m.d.Close()
		m.open()
	}
	seen := bad("hostssl all all 10.0.0.0/99 scram-sha-256")
	refuses(seen)
	newPod()
	m.start(seen)
	refuses(seen)

	newPod()
	unseen := bad("hostssl all all 10.0.0.0/98 scram-sha-256")
	must(t, m.d.Prepare(c.ctx(), unseen)) // and the server does not start, and the pod is made anew
	newPod()
	m.start(unseen)
	refuses(unseen)

	m.become(c.role(m, engine.Primary, 1, nil))
	newPod()
	must(t, os.WriteFile(filepath.Join(m.cfg.DataDir, "."+rememberedName+".123"), nil, 0o600)) // what a write that was cut off leaves
	m.start(c.role(m, engine.Primary, 1, nil))
	m.become(c.role(m, engine.Primary, 1, nil))
	if left, err := filepath.Glob(filepath.Join(m.cfg.DataDir, "."+rememberedName+"*")); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v (%v)", left, err)
	}
	if got := m.report(); got.Problem != "" {
		t.Errorf("it still says %s", got.Problem)
	}
}
