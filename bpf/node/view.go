package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/journal"
	links "github.com/plimsoll-dev/plimsoll-operator/bpf/view"
)

// agents are the names of an agent's program: of the file that the pod begins with, and of one that took its place, in memory.
func agents() []string { return []string{"plimsoll-agent", "memfd:plimsoll-agent"} }

// watching is how one who watches an instance is served.
type watching struct {
	link   *links.Link
	sought time.Time // when its agent was last looked for
	told   bool      // the kernel tells slow and failed statements for the sake of who watches
}

func (w *watching) want() view.Want {
	if w.link == nil {
		return view.Want{}
	}
	return w.link.Want()
}

func (w *watching) end() {
	if w.link != nil {
		w.link.Close()
	}
}

// linkUp finds the agents of targets.
func (n *Node) linkUp(now time.Time) error {
	wanted := map[attribute.Container]bool{}
	for container, t := range n.targets {
		if t.link != nil && t.link.Gone() { // another process of that name was taken for the agent
			t.link.Close()
			t.link, t.sought = nil, time.Time{}
		}
		if n.Version != "" && t.link == nil && now.Sub(t.sought) >= retryEvery {
			wanted[container] = true
			t.sought = now
		}
	}
	found, err := attribute.Programs(n.Proc, n.agents, wanted)
	for container, program := range found {
		process := filepath.Dir(program)
		n.targets[container].link = links.Open(func() (*os.File, error) { return attribute.Root(process, container) }, n.Version, &n.unviewed)
	}
	return err
}

// heed begins and ends to have statements told of a target for those who watch it.
func (n *Node) heed(t *target) error {
	told := t.want().Told
	if told == t.told {
		return nil
	}
	var err error
	if !n.listened() {
		_, err = n.heard() // what was told for the sake of one who has gone
	}
	t.told = told
	if n.Tell != nil || t.Engine == attribute.Redis { // they are told anyway, or never
		return err
	}
	for _, id := range t.cgroups {
		err = errors.Join(err, n.family.Watch(n.wanted(t, id)))
	}
	if err != nil {
		t.told = !told // the next look tries again
	}
	return err
}

// troubled says why an instance cannot be watched, if that has been so for a while.
func (w *watching) troubled() error {
	if w.link == nil {
		return nil
	}
	since, err := w.link.Trouble()
	if err == nil || time.Since(since) < retryEvery {
		return nil
	}
	return fmt.Errorf("it cannot be watched: %w", err)
}

// listened says whether anybody wants to be told of statements.
func (n *Node) listened() bool {
	if n.Tell != nil {
		return true
	}
	for _, t := range n.targets {
		if t.told {
			return true
		}
	}
	return false
}

// shows hands a table to each agent that wants one.
func (n *Node) shows(now time.Time) error {
	var watched []*target
	for _, t := range n.targets {
		if t.want().Table {
			watched = append(watched, t)
		}
	}
	if len(watched) == 0 {
		return nil
	}
	err := errors.Join(n.gather(), n.connections.take(n.Clients))
	for _, t := range watched {
		line, failed := tableLine(n.tableOf(t, now))
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		t.link.Send(line)
	}
	return err
}

// passOn hands statements that were told to the agents that want them.
func (n *Node) passOn(told map[*target][]journal.Entry) error {
	var errs []error
	for t, entries := range told {
		if !t.want().Told {
			continue
		}
		for some := range slices.Chunk(entries, mostInLine) {
			line, err := json.Marshal(struct {
				Told []journal.Entry `json:"told"`
			}{some})
			if err != nil {
				errs = append(errs, fmt.Errorf("pass statements on: %w", err))
				continue
			}
			t.link.Send(line)
		}
	}
	return errors.Join(errs...)
}

// mostInLine bounds the statements of a line: one has some kilobytes at most, and literals may need six bytes for each of theirs.
const mostInLine = 64

func (n *Node) tableOf(t *target, now time.Time) view.Table {
	table := view.Table{At: now.UTC(), Began: n.began[t.owner()], State: n.state(t), Rows: []view.Row{}}
	for counted, sums := range n.table.Statements(t.owner()) {
		st := counted.Statement
		table.Rows = append(table.Rows, view.Row{
			Role: st.Role, User: st.Session.User, Database: st.Session.Database, Query: st.Query, Text: counted.Text, Sums: shown(sums),
		})
	}
	for c, sums := range n.connections.table.Clients(t.owner()) {
		if sums.Open > 0 {
			table.Clients = append(table.Clients, view.Client{Namespace: c.Namespace, Kind: c.Kind, Name: c.Name, Open: sums.Open})
		}
	}
	return table
}

func shown(s *aggregate.Sums) view.Sums {
	out := view.Sums{
		Calls: s.Calls, Rows: s.Rows, Received: s.BytesIn, Sent: s.BytesOut,
		Latency: s.Latency, Queue: s.Queue, Service: s.Service, Transfer: s.Transfer, Errors: s.Errors,
	}
	for slot, calls := range s.Slots {
		if calls > 0 {
			if out.Buckets == nil {
				out.Buckets = map[int64]uint64{}
			}
			out.Buckets[int64(event.Bound(slot))] = calls
		}
	}
	return out
}

// tableLine is a table as a line. If it is too long, those rows that took the least time go without their texts and buckets: their other sums stay
// exact.
func tableLine(table view.Table) ([]byte, error) {
	slices.SortFunc(table.Rows, func(a, b view.Row) int { return cmp.Compare(b.Latency, a.Latency) })
	for whole := len(table.Rows); ; whole /= 2 {
		for i := whole; i < len(table.Rows); i++ {
			table.Rows[i].Text, table.Rows[i].Buckets = "", nil
		}
		line, err := json.Marshal(view.Line{Table: &table})
		if err != nil {
			return nil, fmt.Errorf("show a table: %w", err)
		}
		if len(line) < view.MaxLine || whole == 0 {
			return line, nil
		}
	}
}
