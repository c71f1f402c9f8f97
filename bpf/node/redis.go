package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/query"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/redis"
)

// servers are the names of the files that servers run, by engine. On Debian, redis-server is a link to redis-check-rdb.
func servers(engine string) []string {
	if engine == attribute.Redis {
		return []string{"redis-server", "valkey-server", "redis-check-rdb", "valkey-check-rdb"}
	}
	return []string{"postgres"}
}

// commands are the commands of Redis servers. Their programs are loaded with the first of them, and hook the node's reads and writes while there is one.
type commands struct {
	family *redis.Family
	hooks  bool  // reads and writes are hooked
	hooked error // why they are not, though they were to be
}

// start loads the programs, if they are not.
func (c *commands) start() error {
	if c.family == nil {
		family, err := redis.Load(redis.Options{})
		if err != nil {
			return err
		}
		c.family = family
	}
	c.hooked = c.family.AttachSyscalls()
	c.hooks = c.hooked == nil
	return c.hooked
}

// watch measures a cgroup of a target.
func (c *commands) watch(t *target, cgroup uint64) error {
	if err := c.start(); err != nil {
		return err
	}
	return c.family.Watch(redis.Target{Cgroup: cgroup, Port: t.Port, TLSPort: t.TLSPort})
}

// counts of all commands.
func (c *commands) counts(all []event.Counts) []event.Counts {
	if c.family == nil {
		return all
	}
	for one := range c.family.Counts() {
		all = append(all, one)
	}
	return all
}

func (c *commands) tend() error {
	if c.family == nil {
		return nil
	}
	return c.family.Tend()
}

// read takes a batch of texts.
func (c *commands) read() (event.Batch, error) {
	if c.family == nil {
		return event.Batch{}, nil
	}
	return c.family.Read()
}

// lost adds what was lost to the sums.
func (c *commands) lost(sums map[string]uint64) error {
	if c.family == nil {
		return nil
	}
	lost, err := c.family.Lost()
	for reason, n := range lost {
		sums[reason] += n
	}
	return err
}

// leave lets the node's reads and writes alone when no target is left that needs them.
func (c *commands) leave(targets map[attribute.Container]*target) error {
	if c.family == nil {
		return nil
	}
	for t := range maps.Values(targets) {
		if t.Engine == attribute.Redis {
			return nil
		}
	}
	c.hooks = false
	return c.family.DetachSyscalls()
}

func (c *commands) close() error {
	if c.family == nil {
		return nil
	}
	family := c.family
	c.family = nil
	return family.Close()
}

// opened is what is probed of a server: its program, or the library that seals its connections. It is nil if there is nothing to probe.
type opened interface{ Close() error }

// open looks at what is to be probed of the server that runs the program at path, /proc/PID/exe.
func open(engine, path string) (opened, error) {
	if engine != attribute.Redis {
		p, err := query.Open(path)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	path, err := redis.Libssl(filepath.Dir(path))
	if errors.Is(err, redis.ErrNoLibssl) {
		return nil, nil // all its connections are plain
	}
	if err != nil {
		return nil, err
	}
	l, err := redis.Open(path)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// unsealed is what is probed of a server that cannot speak TLS.
const unsealed = "unsealed"

// probeOpened attaches to what was opened of a server, and gives back what it is known by.
func (n *Node) probeOpened(o opened) (string, error) {
	switch o := o.(type) {
	case *query.Program:
		return n.family.Attach(o)
	case *redis.Library:
		if n.commands.family == nil {
			return "", errors.Join(o.Close(), fmt.Errorf("probe a libssl: %w", fs.ErrClosed))
		}
		return n.commands.family.Attach(o)
	}
	return unsealed, nil
}
