package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// ownDisk gives a member's volume a file system of its own, which can hang and fill up.
func (m *memberPod) ownDisk(t *testing.T, name string) string {
	t.Helper()
	at := m.at(name)
	image := at + ".img"
	f := must(os.Create(image))(t)
	if err := errors.Join(f.Truncate(1<<30), f.Close(), os.MkdirAll(at, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("a volume of its own: %v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		_ = exec.Command("fsfreeze", "--unfreeze", at).Run() // a process that waits for it could not be killed
		m.kill()
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("unmount %s: %v: %s", at, err, out)
		}
	})
	if err := os.Chown(at, m.pod.UID, m.pod.GID); err != nil {
		t.Fatal(err)
	}
	return at
}

func freeze(t *testing.T, how, at string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "fsfreeze", how, at).CombinedOutput(); err != nil {
		t.Fatalf("fsfreeze %s: %v: %s", how, err, out)
	}
}

// TestVitals hurts the leader in the ways that no exit of a process tells of.
func TestVitals(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 3)
	for _, m := range d.members {
		m.ownDisk(t, "data")
	}
	for _, m := range d.members {
		m.start()
	}
	d.until("all three are whole", 60*time.Second, d.whole)
	w := d.writing()
	d.until("writes flow", 10*time.Second, w.now)

	t.Run("the leader's volume hangs", func(t *testing.T) {
		d.t = t
		gap := d.replaced(t, w, func(lead *memberPod) func() {
			freeze(t, "--freeze", lead.at("data"))
			return func() {
				r := lead.says(t)
				if r.Ready || r.Reason != "VolumeHangs" || !strings.Contains(r.Problem, "data volume") {
					t.Errorf("the member with the volume that hangs says %v %s: %s", r.Ready, r.Reason, r.Problem)
				}
				freeze(t, "--unfreeze", lead.at("data"))
			}
		})
		if _, r, err := d.leader(); err != nil || r.HandOver == nil || !strings.Contains(r.HandOver.Why, "the data volume has taken no write") {
			t.Errorf("the new leader does not know why the old one ended (%v): %+v", err, r.HandOver)
		}
		if limit := 15 * time.Second; gap > limit {
			t.Errorf("the gap in writes was %s, want %s at most", gap, limit)
		}
	})
	t.Run("a replica's volume hangs", func(t *testing.T) {
		d.t = t
		lead, follower := d.roles(t)
		w.reset()
		freeze(t, "--freeze", follower.at("data"))
		d.until("the replica says so", 15*time.Second, func() error {
			r, err := follower.report()
			if err != nil {
				return err
			}
			if r.Ready || r.Reason != "VolumeHangs" {
				return fmt.Errorf("it says %v %s: %s", r.Ready, r.Reason, r.Problem)
			}
			return nil
		})
		d.until("writes flow", 10*time.Second, w.now)
		freeze(t, "--unfreeze", follower.at("data"))
		d.until("all three are whole", 60*time.Second, d.whole)
		if now, _, err := d.leader(); err != nil || now != lead {
			t.Errorf("the leader changed (%v)", err)
		}
	})
	for what, signal := range map[string]func(pid int) error{
		"postmaster":          func(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) },
		"server's every part": func(pid int) error { return stopTree(pid) },
	} {
		t.Run("the leader's "+what+" is frozen", func(t *testing.T) {
			d.t = t
			d.replaced(t, w, func(lead *memberPod) func() {
				if err := signal(must(lead.server())(t)); err != nil {
					t.Fatal(err)
				}
				return func() {}
			})
		})
	}
	t.Run("one process of the leader's server dies", func(t *testing.T) {
		d.t = t
		d.replaced(t, w, func(lead *memberPod) func() {
			// A recovery in place would take as long as there is log since the last checkpoint.
			pid := must(lead.server())(t)
			children := must(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)))(t)
			for field := range strings.FieldsSeq(string(children)) {
				line, _ := os.ReadFile(filepath.Join("/proc", field, "cmdline"))
				if strings.Contains(string(line), "background writer") {
					if err := syscall.Kill(must(strconv.Atoi(field))(t), syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
					return func() {}
				}
			}
			t.Fatal("the server has no background writer")
			return nil
		})
	})
	t.Run("the leader's volume is full", func(t *testing.T) { d.t = t; d.fullVolume(t, w) })
	d.t = t
	d.until("writes flow", 10*time.Second, w.now)
	d.keeps(t, w.stop())
}

// stopTree stops a server and its children where they are.
func stopTree(pid int) error {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	err = syscall.Kill(pid, syscall.SIGSTOP)
	for field := range strings.FieldsSeq(string(raw)) {
		var child int
		if _, scanned := fmt.Sscan(field, &child); scanned == nil {
			_ = syscall.Kill(child, syscall.SIGSTOP) // one that has just ended is no matter
		}
	}
	return err
}

// replaced hurts the leader, waits for another, mends what was hurt, and returns the gap in writes.
func (d *database) replaced(t *testing.T, w *writer, hurt func(lead *memberPod) (mend func())) time.Duration {
	t.Helper()
	d.until("all three are whole", 60*time.Second, d.whole)
	d.until("writes flow", 10*time.Second, w.now)
	old, before, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	w.reset()
	begin := time.Now()
	mend := hurt(old)
	d.until("another leads", 30*time.Second, func() error {
		now, r, err := d.leader()
		if err == nil && (r.Epoch <= before.Epoch || now == old) {
			return errors.New("nothing has changed yet")
		}
		return err
	})
	d.until("writes flow again", 10*time.Second, w.now)
	gap, _ := w.longest()
	lead, r, _ := d.leader()
	t.Logf("%s leads after %s, gap in writes %s; hand-over %s", lead.name, old.name, gap.Round(time.Millisecond), steps(r.HandOver))
	mend()
	d.until("all three again", 60*time.Second, d.whole)
	t.Logf("all three again after %s", time.Since(begin).Round(time.Millisecond))
	return gap
}

// fullVolume fills the leader's volume until its server ends. Nobody takes over; room brings it back.
func (d *database) fullVolume(t *testing.T, w *writer) {
	t.Helper()
	d.until("all three are whole", 60*time.Second, d.whole)
	lead, before, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(lead.at("data"), "filler")
	fill := exec.CommandContext(t.Context(), "sh", "-c", `fallocate -l $(($(stat -f -c '%a * %S' .))) filler; dd if=/dev/zero of=filler bs=4k oflag=append conv=notrunc 2>/dev/null; sync -f .`)
	fill.Dir = lead.at("data")
	_ = fill.Run() // it ends when nothing more fits
	load := d.load(t)
	d.until("the leader says that its volume is full and waits", 60*time.Second, func() error {
		r, err := lead.report()
		if err != nil {
			return err
		}
		if r.Reason != "VolumeFull" || r.Role != engine.Stopped || !strings.Contains(r.Problem, "spec.storage.size") {
			return fmt.Errorf("it is %s %s: %s %s", r.State, r.Role, r.Reason, r.Problem)
		}
		return nil
	})
	load()
	time.Sleep(5 * time.Second) // longer than any grant
	for _, m := range d.members {
		if r := m.says(t); r.Epoch != before.Epoch || m != lead && r.Leading {
			t.Errorf("%s: epoch %d, leading %v: a full volume is no reason to hand over", m.name, r.Epoch, r.Leading)
		}
	}
	// Its container restarts: it goes on waiting, and nobody takes over.
	lead.kill()
	lead.start()
	late := false
	d.until("it waits again", 20*time.Second, func() error {
		for _, m := range d.members {
			if r, err := m.report(); err == nil && r.Epoch > before.Epoch {
				late = true
				return nil
			}
		}
		r, err := lead.report()
		if err != nil {
			return err
		}
		if !r.Leading || r.Role != engine.Stopped || r.Reason != "VolumeFull" {
			return fmt.Errorf("leading %v, %s: %s %s", r.Leading, r.Role, r.Reason, r.Problem)
		}
		return nil
	})
	if late { // on a busy machine its grants may run out before it has looked at its data: then it must have released nothing
		if released := fmt.Sprintf(`"event":"Released","epoch":%d`, before.Epoch); strings.Contains(lead.lastLog(200), released) {
			t.Error("it released the lead for a full volume")
		}
		t.Log("it came back too late to keep the lead")
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		d.until("all three are whole", 60*time.Second, d.whole)
		return
	}
	time.Sleep(35 * time.Second) // longer than a winner's server may take
	for _, m := range d.members {
		if r := m.says(t); r.Epoch != before.Epoch || m != lead && r.Leading {
			t.Errorf("%s: epoch %d, leading %v: nor is the restart of a container with a full volume", m.name, r.Epoch, r.Leading)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	d.until("it leads again", 30*time.Second, d.whole)
	now, after, err := d.leader()
	if err != nil || now != lead || after.Epoch != before.Epoch {
		t.Errorf("leader %v at epoch %d (%v), want %s at %d", now, after.Epoch, err, lead.name, before.Epoch)
	}
	d.until("writes flow", 10*time.Second, w.now)
}

// load writes a lot of log until the returned function is called.
func (d *database) load(t *testing.T) func() {
	t.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := d.connect(t.Context(), d.api.routed())
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			_, _ = c.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'load', repeat('x', 4000000)) FROM generate_series(1, 8)") // it ends with the server
			_ = c.Close(t.Context())
		}
	}()
	return func() { close(stop); <-stopped }
}
