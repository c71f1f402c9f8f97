package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// passesOn looks whether a manager hears of all members over its one connection to the leader, within moments.
func (d *database) passesOn(t *testing.T) {
	leader, _ := d.roles(t)
	var mu sync.Mutex
	heard := map[string]engine.Report{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- d.manager.WatchMembers(ctx, leader.peer(), func(r engine.Report) {
			mu.Lock()
			defer mu.Unlock()
			heard[r.Instance] = r
		})
	}()
	took := d.until("all three are heard through the leader", 20*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range d.members {
			r, is := heard[m.peer().Name]
			if !is || !r.Ready || r.UID != uid || r.Leading != (m == leader) {
				return fmt.Errorf("of %s is heard: %v %+v", m.peer().Name, is, r)
			}
		}
		return nil
	})
	t.Logf("after %s", took.Round(time.Millisecond))
	cancel()
	<-done
}
