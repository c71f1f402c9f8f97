// Package node measures the databases of one node: it finds their containers, counts their statements in the kernel and adds them up.
package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/export"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/journal"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/query"
)

const (
	// lookEvery is how often new instances are looked for, and the ring of texts is emptied; tellEvery how often that of slow and failed statements is.
	lookEvery, tellEvery = time.Second, 200 * time.Millisecond
	// takeEvery is how often counts are added up when nobody asks for them, and rankEvery how often places are given to other statements.
	takeEvery, rankEvery = 10 * time.Second, time.Minute
	// walkEvery is how often cgroups are looked through when no instance waits for its own, and searchEvery how often they and processes are
	// while one does.
	walkEvery, searchEvery = time.Minute, 3 * time.Second
	// retryEvery is how often a program is tried again that could not be probed.
	retryEvery = time.Minute
	// openMost is how long a program may be read before its instance is said to be partly seen, and openingMost how many are at one time: those
	// that never end keep a thread each.
	openMost, openingMost = 10 * time.Second, 64
	// lookMost is after how long without an end of a look a probe is to be started again.
	lookMost = 2 * time.Minute
	// lateAfter is how long an instance may wait to be measured before that is told as amiss: on a busy node one has always just come.
	lateAfter = 30 * time.Second
	// patience is after how many looks in a row that failed a node is no longer ready.
	patience = 30
	// mostSessions bounds the users and databases that are remembered; the kernel's side holds as many.
	mostSessions = 4096
)

// Clients tells who has an address.
type Clients func(netip.Addr) attribute.Client

// Options of a Node.
type Options struct {
	// Instances that run on this node, as the API server says. An error changes nothing of what is measured.
	Instances func() ([]attribute.Instance, error)
	// Cgroups and Proc are the node's mounts of its cgroups and processes.
	Cgroups, Proc string
	// Statements of an instance that have series of their own, at most.
	Statements int
	// Slow statements, which take as long or longer (0 for none), and those that failed are told one by one, unless their Database wants it
	// otherwise. Tell takes them and may not wait; nil if nobody listens. Name is the node's.
	Slow   time.Duration
	Failed bool
	Tell   func([]journal.Entry)
	Name   string
	// Clients of connections; nil tells none apart. ClientSeries of an instance are their own, at most.
	Clients      Clients
	ClientSeries int
	// Version of the probe, which the agents of instances are told when it offers them what it counted; empty for none of that.
	Version string
	Log     logr.Logger

	agents []string // the names of their programs, if a test has others
}

// Node is what is measured of one node.
type Node struct {
	Options
	hierarchy string
	syscalls  error         // why system calls are not hooked
	looked    atomic.Int64  // when the last look ended, in Unix seconds; 0 before the first began
	unviewed  atomic.Uint64 // lines for those who watch that were lost

	mu sync.Mutex // over all below

	family   *query.Family
	commands commands
	table    *aggregate.Table
	names    *aggregate.Names
	began    map[aggregate.Instance]time.Time // since when the table knows it
	sessions map[uint64]event.Session
	targets  map[attribute.Container]*target
	cgroups  map[uint64]*target
	skipped  uint64 // cgroups that walks left out
	untold   uint64 // slow and failed statements of containers that had gone
	opening  int    // programs that are being read

	connections connections

	took, ranked, walked, searched time.Time

	failed int    // looks in a row
	said   string // the last failure that was logged
	// What keeps instances from being measured, as of the last walk over cgroups and the last search for programs.
	unwatched, unattached error
	// What kept it from telling statements, the last time.
	unheard error
}

// Start loads the programs into the kernel.
func Start(o Options) (*Node, error) {
	n := &Node{
		Options: o, table: aggregate.New(aggregate.Options{Statements: o.Statements}), names: aggregate.NewNames(),
		sessions: map[uint64]event.Session{}, targets: map[attribute.Container]*target{}, cgroups: map[uint64]*target{},
		failed: patience, said: "there was none yet", began: map[aggregate.Instance]time.Time{},
	}
	if n.agents == nil {
		n.agents = agents()
	}
	var err error
	if n.hierarchy, err = attribute.Hierarchy(o.Cgroups); err != nil {
		return nil, err
	}
	if n.connections = startConnections(o.ClientSeries); n.connections.refused != nil {
		o.Log.Error(n.connections.refused, "connections are not seen")
	}
	if n.family, err = query.Load(query.Options{}); err != nil {
		return nil, errors.Join(err, n.connections.close())
	}
	if n.syscalls = n.family.AttachSyscalls(); n.syscalls == nil {
		return n, nil
	}
	// Connections that are not sealed are then seen at the servers' own functions too.
	o.Log.Info("system calls cannot be hooked: plain connections are seen at the servers' functions", "error", n.syscalls.Error())
	if err := n.family.Close(); err != nil {
		return nil, errors.Join(err, n.connections.close())
	}
	if n.family, err = query.Load(query.Options{BinariesAlone: true}); err != nil {
		return nil, errors.Join(err, n.connections.close())
	}
	return n, nil
}

// Run measures until ctx ends, and takes the programs out of the kernel.
func (n *Node) Run(ctx context.Context) error {
	tick, tell := time.NewTicker(lookEvery), time.NewTicker(tellEvery)
	defer tick.Stop()
	defer tell.Stop()
	n.looked.Store(time.Now().Unix())
	n.look(time.Now())
	n.looked.Store(time.Now().Unix())
	for {
		select {
		case <-ctx.Done():
			return n.close()
		case <-tell.C:
			n.tells()
		case <-tick.C:
			n.look(time.Now())
			n.looked.Store(time.Now().Unix())
		}
	}
}

func (n *Node) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looked.Store(0)
	err := n.tell() // the last ones
	family := n.family
	n.family = nil
	for _, t := range n.targets {
		t.end()
	}
	return errors.Join(err, family.Close(), n.connections.close(), n.commands.close())
}

// Alive is a check of whether looks end. It waits for nobody.
func (n *Node) Alive(*http.Request) error {
	return alive(time.Unix(n.looked.Load(), 0), time.Now())
}

func alive(looked, now time.Time) error {
	if since := now.Sub(looked); looked.Unix() > 0 && since >= lookMost {
		return fmt.Errorf("the last look ended %v ago; one is due each %v", since.Round(time.Second), lookEvery)
	}
	return nil
}

// Ready is a check of whether looks succeed.
func (n *Node) Ready(*http.Request) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.family == nil {
		return errors.New("nothing is measured: it has ended")
	}
	if n.failed >= patience {
		return fmt.Errorf("the last %d looks failed: %s", n.failed, n.said)
	}
	return nil
}

// look finds what runs now, measures it, and logs what keeps it from that when it changes.
func (n *Node) look(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := errors.Join(n.follow(now), n.read(), n.unheard, n.shows(now))
	if now.Sub(n.took) >= takeEvery {
		n.took = now
		err = errors.Join(err, n.take(), n.connections.take(n.Clients))
	}
	if now.Sub(n.ranked) >= rankEvery {
		n.ranked = now
		n.table.Rank()
		n.connections.table.Rank()
	}
	if err == nil {
		n.failed, n.said = 0, ""
		return
	}
	n.failed++
	if said := err.Error(); said != n.said {
		n.said = said
		n.Log.Error(err, "not all instances of this node are measured")
	}
}

// take adds up what was counted, and gives back what nobody uses.
func (n *Node) take() error { return errors.Join(n.gather(), n.family.Tend(), n.commands.tend()) }

// gather adds up what was counted. The counts are copied before the texts are read: then each text that was sent for them is known.
func (n *Node) gather() error {
	counts := n.commands.counts(slices.Collect(n.family.Counts()))
	err := errors.Join(n.drop(counts), n.read())
	n.table.Take(slices.Values(counts), n.whose)
	return err
}

// drop forgets texts of statements that have no counts, if texts found no room. What of that is still at work or comes again is sent again.
func (n *Node) drop(counts []event.Counts) error {
	if !n.names.Full() {
		return nil
	}
	placed := map[uint64]bool{}
	for _, c := range counts {
		placed[c.Key.Print] = true
	}
	if !n.names.Drop(placed) {
		return nil
	}
	err := n.family.ForgetTexts(n.names.Known())
	if n.commands.family != nil {
		err = errors.Join(err, n.commands.family.ForgetTexts(n.names.Known()))
	}
	return err
}

// read takes the texts that were seen for the first time.
func (n *Node) read() error {
	for {
		batch, err := n.family.Read()
		more, failed := n.commands.read()
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		batch.Events = append(batch.Events, more.Events...)
		for _, e := range batch.Events {
			if e.Kind == event.Text {
				n.names.Learn(e)
			}
		}
		if len(batch.Events) == 0 {
			return nil
		}
	}
}

// whose tells what a key counts.
func (n *Node) whose(k event.Key) (aggregate.Counted, bool) {
	t, ok := n.cgroups[k.Cgroup]
	if !ok {
		return aggregate.Counted{}, false
	}
	c := aggregate.Counted{Instance: t.owner(), Statement: aggregate.Statement{Role: t.Role, Query: aggregate.Other}}
	if q, known := n.names.Of(k); known {
		c.Statement.Query, c.Statement.Session = q.ID, n.session(t.Engine, k.Who)
		if k.State.Parsed() {
			c.Text = q.Text
		}
	}
	return c, true
}

// session of a key; empty if it is not known.
func (n *Node) session(engine string, who uint64) event.Session {
	if s, known := n.sessions[who]; known || who == 0 {
		return s
	}
	ask := n.family.Session
	if engine == attribute.Redis {
		ask = n.commands.family.Session
	}
	s, known, err := ask(who)
	if err != nil || !known {
		return event.Session{} // it is asked for again with the next call
	}
	// PostgreSQL takes any bytes for names.
	s = event.Session{User: strings.ToValidUTF8(s.User, "\ufffd"), Database: strings.ToValidUTF8(s.Database, "\ufffd")}
	if len(n.sessions) >= mostSessions {
		clear(n.sessions)
	}
	n.sessions[who] = s
	return s
}

// Look implements export.Source.
func (n *Node) Look(show func(export.Sight)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.family == nil {
		return // it has ended
	}
	err := n.take()
	lost, more := n.family.Lost()
	if err = errors.Join(err, more); err != nil {
		n.Log.Error(err, "cannot read all that was counted")
	}
	if lost == nil {
		lost = map[string]uint64{}
	}
	if err := n.commands.lost(lost); err != nil {
		n.Log.Error(err, "cannot read all that was lost of commands")
	}
	lost["forgotten"], lost["cgroups"] = n.names.Dropped(), n.skipped
	lost["records"] += n.untold
	lost["views"] = n.unviewed.Load()
	if err := n.connections.lost(lost); err != nil {
		n.Log.Error(err, "cannot read all that was lost of connections")
	}
	s := n.status()
	show(export.Sight{Table: n.table, Lost: lost, Hooks: s.Hooks, Instances: s.Instances})
}
