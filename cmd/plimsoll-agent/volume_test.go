package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// ownLogVolumes gives each member a volume of its own for the log.
func (d *database) ownLogVolumes() {
	d.t.Helper()
	for _, m := range d.members {
		if err := errors.Join(os.MkdirAll(m.pod.WAL, 0o755), os.Chown(m.pod.WAL, m.pod.UID, m.pod.GID)); err != nil {
			d.t.Fatal(err)
		}
	}
}

// logVolumes looks where the log lies: begun, copied, and copied anew it is on its own volume, once.
func (d *database) logVolumes(t *testing.T, _ *writer) {
	_, follower := d.roles(t)
	d.loses(t, follower, "data")
	d.until("all three are whole", 60*time.Second, d.whole)
	for _, m := range d.members {
		at := must(os.Readlink(filepath.Join(m.pod.Data, "pgdata", "pg_wal")))(t)
		if filepath.Dir(at) != m.pod.WAL {
			t.Errorf("%s keeps its log in %s, want it on %s", m.name, at, m.pod.WAL)
		}
		if r := m.says(t); r.WAL.Size == 0 {
			t.Errorf("%s reports no log volume", m.name)
		}
		d.until(m.name+" keeps one log", 10*time.Second, func() error {
			if dirs := must(filepath.Glob(filepath.Join(m.pod.WAL, "pg_wal*")))(t); len(dirs) != 1 || dirs[0] != at {
				return fmt.Errorf("on the volume are %q, in use is %s", dirs, at)
			}
			return nil
		})
	}
}

// loses kills the pod, empties its volume and starts it again.
func (d *database) loses(t *testing.T, m *memberPod, volume string) {
	t.Helper()
	m.kill()
	at := filepath.Join(d.dir, m.name, volume)
	entries := must(os.ReadDir(at))(t)
	if len(entries) == 0 {
		t.Fatalf("%s is empty already", at)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(at, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	m.start()
}

// TestLostVolume loses the first member's volume, with all that its agent remembers. Once a primary has served, the manager names
// nobody to begin the Database.
func TestLostVolume(t *testing.T) {
	t.Parallel() // it waits more than it works
	t.Run("with others", func(t *testing.T) {
		d := newDatabase(t, 3)
		for _, m := range d.members {
			m.start()
		}
		d.until("all three are whole", 60*time.Second, d.whole)
		d.change = func(a *engine.Aim) { a.Bootstrap = "" }
		w := d.writing()
		d.until("writes flow", 10*time.Second, w.now)
		for range 2 { // once as a leader, once as a follower
			d.loses(t, d.members[0], "data")
			d.until("it is copied anew", 60*time.Second, d.whole)
		}
		d.until("writes flow", 10*time.Second, w.now)
		d.keeps(t, w.stop())
	})
	t.Run("alone", func(t *testing.T) {
		d := newDatabase(t, 1)
		one := d.members[0]
		one.start()
		d.until("it leads", 30*time.Second, d.whole)
		for name, bootstrap := range map[string]string{"nobody may begin it": "", "the manager has not heard yet that it was begun": "orders-1"} {
			t.Run(name, func(t *testing.T) {
				d.t = t
				d.change = func(a *engine.Aim) { a.Bootstrap = bootstrap }
				d.publish()
				d.loses(t, one, "data")
				d.until("it says that its data is gone", 20*time.Second, func() error {
					r, err := one.report()
					if err != nil {
						return err
					}
					if r.Reason != "DataLost" || !strings.Contains(r.Problem, "backup") || r.Ready || r.Role != engine.Stopped {
						return fmt.Errorf("%s %s %s: %s", r.State, r.Role, r.Reason, r.Problem)
					}
					return nil
				})
				time.Sleep(3 * time.Second)
				d.publish()
				r := one.says(t)
				t.Logf("%s %s: %s", r.State, r.Reason, r.Problem)
				if _, err := os.Stat(filepath.Join(one.pod.Data, "pgdata", "PG_VERSION")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("it began an empty database: %v", err)
				}
				if _, err := one.server(); err == nil {
					t.Error("it runs a server without data")
				}
			})
		}
	})
}

// TestInterruptedBeginning kills the first member at moments of its beginning, when the Lease names it already and its data is not
// whole yet. It must begin again.
func TestInterruptedBeginning(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, marker := range []string{"promise.json", "aim.json", "../pgdata.new", "../pgdata"} {
		t.Run(filepath.Base(marker), func(t *testing.T) {
			d := newDatabase(t, 1)
			one := d.members[0]
			one.start()
			d.until(marker+" is there", 20*time.Second, func() error {
				_, err := os.Stat(filepath.Join(one.pod.Agent.StateDir, marker))
				return err
			})
			one.kill()
			one.start()
			d.until("it leads", 40*time.Second, d.whole)
		})
	}
}
