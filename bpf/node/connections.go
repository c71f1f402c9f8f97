package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/connection"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// connections are what a Node measures of its instances' clients over TCP. Without a family, because the kernel did not take its programs, nothing of
// that is measured, and all else is.
type connections struct {
	family  *connection.Family
	table   *aggregate.Connections
	watched map[uint64]*target // by cgroup
	refused error              // why there is no family
}

func startConnections(series int) connections {
	c := connections{table: aggregate.NewConnections(series), watched: map[uint64]*target{}}
	family, err := connection.Load()
	if err != nil {
		c.refused = err
		return c
	}
	if err := family.Attach(); err != nil {
		c.refused = errors.Join(err, family.Close())
		return c
	}
	c.family = family
	return c
}

func (c *connections) close() error {
	if c.family == nil {
		return nil
	}
	family := c.family
	c.family = nil
	return family.Close()
}

// watch measures the cgroups that are not yet.
func (c *connections) watch(cgroups map[uint64]*target) error {
	if c.family == nil {
		return nil
	}
	var errs []error
	for id, t := range cgroups {
		if c.watched[id] != nil {
			continue
		}
		if err := c.family.Watch(connection.Target{Cgroup: id, Port: t.Port}); err != nil {
			errs = append(errs, fmt.Errorf("instance %s/%s: %w", t.Namespace, t.Name, err))
			continue
		}
		c.watched[id] = t
	}
	return errors.Join(errs...)
}

// leave ends the measuring of cgroups whose container has ended.
func (c *connections) leave(cgroups []uint64) error {
	var errs []error
	for _, id := range cgroups {
		if c.watched[id] == nil {
			continue
		}
		errs = append(errs, c.family.Unwatch(id))
		c.table.ForgetCgroup(id)
		delete(c.watched, id)
	}
	return errors.Join(errs...)
}

// wants says whether connections that were there before are to be looked for.
func (c *connections) wants(t *target) bool { return c.family != nil && !t.found }

// find counts the connections that an instance had before it was measured, once; program is the file of its process in the node's /proc.
func (c *connections) find(t *target, program string) error {
	if !c.wants(t) {
		return nil
	}
	err := c.family.Find(filepath.Join(filepath.Dir(program), "ns", "net"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the process has ended meanwhile: another is looked for
	}
	t.found = true
	if err != nil {
		return fmt.Errorf("instance %s/%s: %w", t.Namespace, t.Name, err)
	}
	return nil
}

// take adds up what was counted.
func (c *connections) take(clients Clients) error {
	if c.family == nil {
		return nil
	}
	err := c.family.Look()
	counts := slices.Collect(c.family.Counts())
	c.table.Take(slices.Values(counts), func(n *event.Connections) (aggregate.Visit, bool) {
		t := c.watched[n.Cgroup]
		if t == nil {
			return aggregate.Visit{}, false
		}
		v := aggregate.Visit{Instance: t.owner(), Client: aggregate.OtherClients()}
		if n.Client.IsValid() && clients != nil {
			v.Client = aggregate.Client(clients(n.Client))
		}
		return v, true
	})
	return errors.Join(err, c.family.Tend())
}

// lost adds what of connections was lost, by reason.
func (c *connections) lost(to map[string]uint64) error {
	if c.family == nil {
		return nil
	}
	lost, err := c.family.Lost()
	for reason, n := range lost {
		to[reason] = n
	}
	return err
}

// LookConnections implements export.ConnectionSource.
func (n *Node) LookConnections(show func(*aggregate.Connections)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.family == nil {
		return // it has ended
	}
	if err := n.connections.take(n.Clients); err != nil {
		n.Log.Error(err, "cannot read all that was counted of connections")
	}
	show(n.connections.table)
}
