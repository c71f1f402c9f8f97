package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const envPrepare = "PLIMSOLL_TEST_PREPARE"

type errand struct {
	Config     Config
	Role       engine.Role
	Credential *syscall.Credential
}

// TestMain is also the process that TestPrepareSurvivesItsEnd kills.
func TestMain(m *testing.M) {
	raw := os.Getenv(envPrepare)
	if raw == "" {
		goleak.VerifyTestMain(m)
		return
	}
	var e errand
	if err := json.Unmarshal([]byte(raw), &e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	e.Config.Credential = e.Credential
	d, err := New(e.Config)
	if err == nil {
		err = d.Prepare(context.Background(), e.Role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// prepareAndKill begins Prepare in a process of its own and kills it after that time. It says whether it had ended by itself.
func (m *member) prepareAndKill(r engine.Role, after time.Duration) bool {
	m.c.t.Helper()
	cfg := m.cfg
	cfg.Logger, cfg.Credential = nil, nil
	raw, err := json.Marshal(errand{cfg, r, m.c.cred})
	must(m.c.t, err)
	self, err := os.Executable()
	must(m.c.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envPrepare+"="+string(raw))
	cmd.Stderr = os.Stderr
	must(m.c.t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		must(m.c.t, err)
		return true
	case <-time.After(after):
	}
	_ = cmd.Process.Kill()
	<-done
	// The end of PID 1 is the end of all: of the child that receives the log for pg_basebackup, of pg_rewind's server.
	m.c.until("the programs that it had started are gone", func() error {
		users := usersOf(m.cfg.DataDir)
		for _, pid := range users {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(users) > 0 {
			return fmt.Errorf("processes %v", users)
		}
		return nil
	})
	return false
}

// usersOf are processes that work in the directory.
func usersOf(dir string) []int {
	all, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var users []int
	for _, link := range all {
		at, err := os.Readlink(link)
		if err != nil || at != dir && !strings.HasPrefix(at, dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			users = append(users, pid)
		}
	}
	return users
}

// untilDone kills Prepare later and later until it gets through, and looks at what each end left.
func (m *member) untilDone(r engine.Role, step time.Duration) {
	m.c.t.Helper()
	m.d.Close()
	kills := 0
	for after := step; ; after += step {
		if m.prepareAndKill(r, after) {
			break
		}
		kills++
		if _, err := os.Stat(m.d.data()); err != nil {
			continue // nothing is as good as all
		}
		for _, name := range []string{"PG_VERSION", "global/pg_control", "postgresql.conf"} {
			if !exists(filepath.Join(m.d.data(), name)) {
				m.c.t.Errorf("killed after %v: a data directory without %s", after, name)
			}
		}
		if r.Kind == engine.Replica && !exists(filepath.Join(m.d.data(), standbySignal)) && !exists(m.d.rewind()) {
			m.c.t.Errorf("killed after %v: a copy that would start as a primary", after)
		}
	}
	m.c.t.Logf("killed %d times before it got through", kills)
	if kills < 3 {
		m.c.t.Errorf("only %d kills: nothing is shown", kills)
	}
	m.open()
}

func TestPrepareSurvivesItsEndAtAnyInstant(t *testing.T) {
	t.Run("a new database", func(t *testing.T) {
		c := newCluster(t)
		m := c.add(true)
		r := c.role(m, engine.Primary, 1, nil)
		r.Initialise = true
		m.untilDone(r, 150*time.Millisecond)
		m.start(r)
		m.become(r)
		m.alone(t)
	})
	t.Run("a copy", func(t *testing.T) {
		c := newCluster(t)
		p := c.primary(true)
		p.exec("CREATE TABLE a AS SELECT generate_series(1, 1000) AS id")
		m := c.add(true)
		p.become(c.role(p, engine.Primary, 1, nil))
		r := c.role(m, engine.Replica, 1, p)
		m.untilDone(r, 100*time.Millisecond)
		m.start(r)
		m.become(r)
		m.follows(p)
		m.alone(t)
	})
	t.Run("a rewind", func(t *testing.T) {
		c, p, m := forkedPair(t, true)
		r := c.role(p, engine.Replica, 2, m)
		first := 0
		p.d.Close()
		for after := 100 * time.Millisecond; !p.prepareAndKill(r, after) && after < time.Minute; after += 150 * time.Millisecond {
			first++
		}
		t.Logf("killed %d times before it got through", first)
		if first < 2 {
			t.Errorf("only %d kills: nothing is shown", first)
		}
		p.open()
		p.start(r)
		p.become(r)
		p.follows(m)
		p.alone(t)
	})
}

// alone: no end left anything beside the data.
func (m *member) alone(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(m.cfg.DataDir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if fmt.Sprint(names) != fmt.Sprint([]string{lockName, rememberedName, dataName}) {
		t.Errorf("the data volume holds %v", names)
	}
	logs, err := os.ReadDir(m.cfg.WALDir)
	must(t, err)
	if len(logs) != 1 {
		t.Errorf("the log's volume holds %d directories", len(logs))
	}
}
