package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/query"
)

// How far an instance is measured.
const (
	Measured = "measured" // all its connections are seen
	Partly   = "partly"   // its program cannot be probed: those through TLS are not seen
	Unseen   = "unseen"   // neither its program nor system calls can be probed
	Waiting  = "waiting"  // its container or its server is not found yet
)

// target is an instance that is measured.
type target struct {
	attribute.Instance
	since   time.Time
	cgroups []uint64
	program string    // that is probed
	refused error     // why it is not
	again   time.Time // when to try it again; never if it is zero
	opened  time.Time // since when its program is looked at; zero if it is not
	found   bool      // its connections from before were looked for
	watching
}

func (t *target) owner() aggregate.Instance {
	return aggregate.Instance{Namespace: t.Namespace, Database: t.Database, Name: t.Name}
}

func (n *Node) state(t *target) string {
	switch {
	case t.Engine == attribute.Redis && n.commands.hooked != nil:
		return Unseen
	case t.program != "":
		return Measured
	case t.refused != nil && (n.syscalls == nil || t.Engine == attribute.Redis):
		return Partly
	case t.refused != nil:
		return Unseen
	default:
		return Waiting
	}
}

// follow measures what runs, and nothing else.
func (n *Node) follow(now time.Time) error {
	instances, err := n.Instances()
	if err != nil {
		return fmt.Errorf("ask which instances run on this node: %w", err)
	}
	runs := map[attribute.Container]bool{}
	for _, i := range instances {
		runs[i.Container] = true
		t := n.targets[i.Container]
		if t == nil {
			t = &target{Instance: i, since: now}
			n.targets[i.Container] = t
			if _, known := n.began[t.owner()]; !known {
				n.began[t.owner()] = now.UTC()
			}
			n.walked, n.searched = time.Time{}, time.Time{}
		}
		if t.Role != i.Role {
			// What was counted until now belongs to the old role.
			err = errors.Join(err, n.take(), n.tell())
			t.Role = i.Role
		}
		t.Address = i.Address
		if !reflect.DeepEqual(t.Statements, i.Statements) && t.Engine != attribute.Redis { // of whose commands none is told one by one
			t.Statements = i.Statements
			for _, id := range t.cgroups {
				err = errors.Join(err, n.family.Watch(n.wanted(t, id)))
			}
		}
	}
	err = errors.Join(err, n.leave(runs))
	for _, t := range n.targets {
		err = errors.Join(err, n.heed(t))
	}
	if n.walks(now) {
		n.walked, n.unwatched = now, n.watch()
	}
	if now.Sub(n.searched) >= searchEvery {
		n.searched, n.unattached = now, errors.Join(n.attach(now), n.linkUp(now))
	}
	return errors.Join(err, n.unwatched, n.unattached)
}

// leave ends the measuring of containers that do not run any more.
func (n *Node) leave(runs map[attribute.Container]bool) error {
	var errs []error
	instances := map[aggregate.Instance]bool{}
	gone := map[attribute.Container]*target{}
	for container, t := range n.targets {
		if runs[container] {
			instances[t.owner()] = true
		} else {
			gone[container] = t
		}
	}
	if len(gone) > 0 {
		errs = append(errs, n.take(), n.tell(), n.connections.take(n.Clients))
	}
	for container, t := range gone {
		delete(n.targets, container)
		t.end()
		unwatch, detach := n.family.Unwatch, n.family.DetachBinary
		if t.Engine == attribute.Redis && n.commands.family != nil {
			unwatch, detach = n.commands.family.Unwatch, n.commands.family.Detach
		}
		for _, id := range t.cgroups {
			errs = append(errs, unwatch(id))
			n.table.ForgetCgroup(id)
			delete(n.cgroups, id)
		}
		errs = append(errs, n.connections.leave(t.cgroups))
		if !instances[t.owner()] {
			n.table.Forget(t.owner())
			delete(n.began, t.owner())
			n.connections.table.Forget(t.owner())
		}
		if t.program != "" && !n.probes(t.program) {
			errs = append(errs, detach(t.program))
		}
	}
	if len(gone) > 0 {
		errs = append(errs, n.commands.leave(n.targets))
	}
	return errors.Join(errs...)
}

// probes says whether a program is one of a target.
func (n *Node) probes(id string) bool {
	for _, t := range n.targets {
		if t.program == id {
			return true
		}
	}
	return false
}

// walks says whether cgroups are to be looked through now.
func (n *Node) walks(now time.Time) bool {
	every := walkEvery
	for _, t := range n.targets {
		if len(t.cgroups) == 0 {
			every = searchEvery
		}
	}
	return len(n.targets) > 0 && now.Sub(n.walked) >= every
}

// watch finds the cgroups of targets.
func (n *Node) watch() error {
	tree, err := attribute.Walk(n.hierarchy)
	if err != nil {
		return err
	}
	n.skipped += uint64(tree.Skipped)
	var errs []error
	for container, t := range n.targets {
		for _, id := range tree.Cgroups[container] {
			if n.cgroups[id] == t {
				continue
			}
			if err := n.watchCgroup(t, id); err != nil {
				errs = append(errs, fmt.Errorf("instance %s/%s: %w", t.Namespace, t.Name, err))
				continue
			}
			n.cgroups[id] = t
			t.cgroups = append(t.cgroups, id)
		}
	}
	return errors.Join(append(errs, n.connections.watch(n.cgroups))...)
}

func (n *Node) watchCgroup(t *target, id uint64) error {
	if t.Engine == attribute.Redis {
		return n.commands.watch(t, id)
	}
	return n.family.Watch(n.wanted(t, id))
}

// attach finds the programs of targets whose cgroups are known.
func (n *Node) attach(now time.Time) error {
	wanted := map[string]map[attribute.Container]bool{} // by engine
	for container, t := range n.targets {
		if late := now.Sub(t.opened); !t.opened.IsZero() {
			if late >= openMost && t.refused == nil {
				n.refuse(t, fmt.Errorf("its program has not been read within %v", openMost), now)
			}
			continue
		}
		if len(t.cgroups) > 0 && (t.wanted(now) || n.connections.wants(t)) {
			if wanted[t.Engine] == nil {
				wanted[t.Engine] = map[attribute.Container]bool{}
			}
			wanted[t.Engine][container] = true
		}
	}
	found := map[attribute.Container]string{}
	var err error
	for engine, some := range wanted {
		paths, failed := attribute.Programs(n.Proc, servers(engine), some)
		maps.Copy(found, paths)
		err = errors.Join(err, failed)
	}
	for container, path := range found {
		t := n.targets[container]
		err = errors.Join(err, n.connections.find(t, path))
		if !t.wanted(now) {
			continue
		}
		if n.opening == openingMost {
			return errors.Join(err, fmt.Errorf("%d programs are being read at one time, and none of these reads ends: others wait", openingMost))
		}
		n.opening++
		t.opened = now
		// A file in a container is its user's, and may be on a file system that never answers: nobody waits for it.
		go func() {
			p, err := open(t.Engine, path)
			n.probe(container, t, p, err)
		}()
	}
	return err
}

// probe attaches to the program of a target, which has been read.
func (n *Node) probe(container attribute.Container, t *target, p opened, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opening--
	t.opened = time.Time{}
	if n.family == nil || n.targets[container] != t { // what it was for has ended meanwhile
		if err == nil && p != nil {
			err = p.Close()
		}
		n.Log.V(1).Info("an instance ended while its program was read", "instance", t.Name, "error", err)
		return
	}
	var id string
	if err == nil {
		id, err = n.probeOpened(p)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return // the process has ended meanwhile
	}
	if err != nil {
		n.refuse(t, err, time.Now())
		return
	}
	t.program, t.refused = id, nil
	n.Log.Info("measures an instance", "namespace", t.Namespace, "instance", t.Name, "program", t.program)
}

// refuse notes that the program of a target is not probed, and says so when it was not before.
func (n *Node) refuse(t *target, why error, now time.Time) {
	if t.refused == nil {
		n.Log.Error(why, "the connections through TLS of an instance are not seen", "namespace", t.Namespace, "instance", t.Name)
	}
	t.refuse(why, now)
}

// wanted says whether the program of a target is to be probed now.
func (t *target) wanted(now time.Time) bool { return t.program == "" && t.due(now) }

// due says whether to look for the program of a target.
func (t *target) due(now time.Time) bool {
	return t.refused == nil || !t.again.IsZero() && !now.Before(t.again)
}

// refuse notes that the program of a target was not probed. What the file is does not change; anything else may.
func (t *target) refuse(why error, now time.Time) {
	t.refused, t.again = why, now.Add(retryEvery)
	var unfit *query.UnfitError
	if errors.As(why, &unfit) {
		t.again = time.Time{}
	}
}
