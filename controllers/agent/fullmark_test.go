package agent

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

// TestTheFullMark is set while a leader waits for room, and gone before anything is released: a stop comes first, and a claim uses it up.
func TestTheFullMark(t *testing.T) {
	k := &keeper{cfg: Config{StateDir: t.TempDir()}, server: server{Life: down}}
	taken := func(what string, want bool) {
		t.Helper()
		got, err := k.mark().take()
		if err != nil || got != want {
			t.Fatalf("%s: %v (%v), want %v", what, got, err, want)
		}
	}
	settle := func(role lease.Role, full bool, life life) {
		t.Helper()
		k.server.Full, k.server.Life = full, life
		if !k.settleMark(seen{Decision: lease.Decision{Role: role}}) {
			t.Fatalf("as %s the mark is not settled", role)
		}
	}
	taken("a new volume", false)
	settle(lease.RolePrimary, false, up)
	taken("a leader that serves", false)
	settle(lease.RolePrimary, true, down)
	settle(lease.RoleNone, true, down)
	taken("a leader that waits for room", true)
	taken("the next run, whose claim may have failed", false)
	k.marked = false
	for _, next := range []struct {
		what string
		role lease.Role
		life life
	}{{"one that stops", lease.RoleStop, down}, {"one that follows", lease.RoleReplica, down}, {"one that found room", lease.RolePrimary, up}} {
		settle(lease.RolePrimary, true, down)
		settle(next.role, next.life == down, next.life)
		taken(next.what, false)
	}
}
