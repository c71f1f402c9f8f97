package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// TestAims changes what the manager wants of three members with real PostgreSQL, under a client that writes all the time.
func TestAims(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 3)
	d.ownLogVolumes()
	for _, m := range d.members {
		m.start()
	}
	d.until("all three are whole", 60*time.Second, d.whole)
	w := d.writing()
	for _, part := range []struct {
		name string
		run  func(t *testing.T, w *writer)
	}{
		{"a separate log volume", d.logVolumes},
		{"a parameter that the server refuses", d.badParameter},
		{"a restart token", d.restartsOnce},
		{"people inside the container", d.sessionsInside},
		{"certificates change", d.rotates},
		{"fenced and unfenced", d.fences},
		{"all stopped and started", d.hibernates},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			d.t = t
			d.until("writes flow", 20*time.Second, w.now)
			w.reset()
			part.run(t, w)
			d.change = nil
			d.until("all three are whole again", 60*time.Second, d.whole)
			d.until("writes flow again", 20*time.Second, w.now)
		})
		d.t = t
		if !ok {
			break // what follows would only repeat it
		}
	}
	d.keeps(t, w.stop())
}

// writing begins a client that writes all the time.
func (d *database) writing() *writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{db: d, cancel: cancel, done: make(chan struct{}), acked: map[int64]time.Time{}}
	go w.run(ctx)
	return w
}

// still is a gap in writes that even a busy machine does not make by itself. One that a change of leader makes is longer.
const still = 3 * time.Second

// now says whether writes flow at this moment.
func (w *writer) now() error { return w.flows(time.Now().Add(-50 * time.Millisecond)) }

// roles are the leader and one who follows.
func (d *database) roles(t *testing.T) (lead, follower *memberPod) {
	t.Helper()
	// Writes may flow before the leader has told of itself.
	d.until("somebody says that it leads", 10*time.Second, func() (err error) {
		lead, _, err = d.leader()
		return err
	})
	i := slices.IndexFunc(d.members, func(m *memberPod) bool { return m != lead })
	return lead, d.members[i]
}

// badParameter gives all members a setting that PostgreSQL does not take: they go on with the old configuration and say so.
func (d *database) badParameter(t *testing.T, w *writer) {
	lead, _ := d.roles(t)
	before := must(lead.server())(t)
	for _, line := range []string{"no_such_parameter = 'on'", "work_mem = 'a lot'"} {
		d.change = func(a *engine.Aim) { a.Files[postgres.FileParameters] += line + "\n" }
		name, _, _ := strings.Cut(line, " ")
		d.until("all tell of "+name, 20*time.Second, func() error {
			for _, m := range d.members {
				r, err := m.report()
				if err != nil {
					return err
				}
				if r.Reason != "ConfigurationRefused" || !strings.Contains(r.Problem, name) || r.Converged {
					return fmt.Errorf("%s says %s %q, converged %v", m.name, r.Reason, r.Problem, r.Converged)
				}
				if !r.Ready || r.State != "running" {
					return fmt.Errorf("%s is %s, ready %v", m.name, r.State, r.Ready)
				}
			}
			return nil
		})
	}
	d.until("writes flow", 10*time.Second, w.now)
	if gap, _ := w.longest(); gap > still {
		t.Errorf("writes stood still for %s", gap)
	}
	if pid := must(lead.server())(t); pid != before {
		t.Errorf("the leader's server is process %d, was %d: it must stay up", pid, before)
	}
	d.change = nil
	d.until("all have converged", 20*time.Second, d.whole)
	r := lead.says(t)
	if r.Reason != "" || r.Problem != "" {
		t.Errorf("the leader still says %s: %s", r.Reason, r.Problem)
	}
}

// restartsOnce restarts a replica and then the leader by token, and not again: not by the same aim, nor after the pod's own restart.
func (d *database) restartsOnce(t *testing.T, w *writer) {
	lead, follower := d.roles(t)
	_, before, _ := d.leader()
	for _, m := range []*memberPod{follower, lead} {
		old, token := must(m.server())(t), "restart-"+m.name
		others := map[*memberPod]int{}
		for _, o := range d.members {
			if o != m {
				others[o] = must(o.server())(t)
			}
		}
		d.change = func(a *engine.Aim) {
			if a.Member == m.name {
				a.Restart = token
			}
		}
		d.until(m.name+" has restarted", 20*time.Second, func() error {
			r, err := m.report()
			if err != nil {
				return err
			}
			pid, err := m.server()
			if err == nil && (pid == old || r.RestartDone != token) {
				err = fmt.Errorf("server %d, was %d; done %q", pid, old, r.RestartDone)
			}
			return err
		})
		d.until("all three are whole", 30*time.Second, d.whole)
		again := must(m.server())(t)
		time.Sleep(time.Second)
		d.publish()
		time.Sleep(500 * time.Millisecond)
		if pid := must(m.server())(t); pid != again {
			t.Errorf("%s restarted twice for one token", m.name)
		}
		for o, pid := range others {
			if now := must(o.server())(t); now != pid {
				t.Errorf("%s restarted for the token of %s", o.name, m.name)
			}
		}
		gap, _ := w.longest()
		t.Logf("restart of %s, leader %v: longest gap in writes %s", m.name, m == lead, gap.Round(time.Millisecond))
	}
	now, after, _ := d.leader()
	t.Logf("%s led at epoch %d, %s leads at epoch %d", lead.name, before.Epoch, now.name, after.Epoch)

	if err := follower.terminate(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	d.change = func(a *engine.Aim) {
		a.Restart = map[string]string{lead.name: "restart-" + lead.name, follower.name: "restart-" + follower.name}[a.Member]
	}
	mark := len(follower.lastLog(1 << 20))
	follower.start()
	d.until("all three are whole", 30*time.Second, d.whole)
	time.Sleep(500 * time.Millisecond)
	if n := strings.Count(follower.lastLog(1 << 20)[mark:], `"msg":"server started"`); n != 1 {
		t.Errorf("the server of a new pod was started %d times, want once: the token was carried out before", n)
	}
}

// fences a replica, then the leader, and lets both go again.
func (d *database) fences(t *testing.T, w *writer) {
	lead, follower := d.roles(t)
	for _, m := range []*memberPod{follower, lead} {
		d.change = func(a *engine.Aim) { a.Stop = a.Member == m.name }
		d.until(m.name+" is fenced", 30*time.Second, func() error { return m.is("fenced") })
		if pid, err := m.server(); err == nil {
			t.Errorf("%s is fenced and runs server %d", m.name, pid)
		}
		d.until("writes flow", 20*time.Second, w.now)
		if now, _ := d.roles(t); now == m {
			t.Errorf("%s is fenced and leads", m.name)
		}
		gap, _ := w.longest()
		t.Logf("fencing of %s, leader %v: longest gap in writes %s", m.name, m == lead, gap.Round(time.Millisecond))
		d.change = nil
		d.until("all three are whole", 30*time.Second, d.whole)
	}
}

// hibernates stops all members, replicas first, ends their pods, and begins again with what there was.
func (d *database) hibernates(t *testing.T, _ *writer) {
	lead, _ := d.roles(t)
	stopped := func(a *engine.Aim) { a.Stop = true }
	d.change = func(a *engine.Aim) { a.Stop = a.Member != lead.name }
	for _, m := range d.members {
		if m != lead {
			d.until(m.name+" has stopped", 30*time.Second, func() error { return m.is("fenced") })
		}
	}
	d.change = stopped
	took := d.until("the leader has stopped", 30*time.Second, func() error { return lead.is("fenced") })
	t.Logf("the leader without fit followers stopped within %s", took.Round(time.Millisecond))
	var position engine.Position
	d.until("a look at the stopped server's files is reported", 20*time.Second, func() error {
		before := position
		time.Sleep(2 * time.Second) // longer than from one look to the next
		if position = lead.says(t).Position; position != before {
			return fmt.Errorf("its position was %q and is %q", before.Text, position.Text)
		}
		return nil
	})
	for _, m := range d.members {
		if err := m.terminate(); err != nil {
			t.Errorf("the agent of %s ended with %v", m.name, err)
		}
	}
	mark := map[*memberPod]int{}
	for _, m := range d.members {
		mark[m] = len(m.lastLog(1 << 20))
		m.start() // the aim on the volume says that it stays stopped
	}
	time.Sleep(4 * time.Second)
	for _, m := range d.members {
		d.until(m.name+" is stopped after its pod's restart", 20*time.Second, func() error { return m.is("fenced") })
		if strings.Count(m.lastLog(1 << 20)[mark[m]:], `"msg":"server started"`) > 0 {
			t.Errorf("%s ran a server meanwhile", m.name)
		}
	}
	d.until("a stopped member is where it was", 20*time.Second, func() error {
		if diff := cmp.Diff(position, lead.says(t).Position); diff != "" {
			return fmt.Errorf("position (-before +after):\n%s", diff)
		}
		return nil
	})
	d.change = nil
	begin := time.Now()
	d.until("all three are whole", 60*time.Second, d.whole)
	t.Logf("all three again after %s", time.Since(begin).Round(time.Millisecond))
}
