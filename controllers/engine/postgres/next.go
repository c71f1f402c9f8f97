package postgres

import (
	"fmt"
	"slices"
	"sort"
	"strconv"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// maxLag is how far behind a replica may be, in bytes, and still count as in step.
const maxLag = 16 << 20

// Next is the nearest safe topology. It grows at once, shrinks by one, and restarts one member at a time: replicas that need it
// first, then the leader hands over to one that has been through it and is restarted as a replica. A member needs a restart when
// a parameter waits for one or when its image is not the one that the spec asks for (the manager replaces its pod then).
func (e *Engine) Next(d *v1.Database, all []engine.Member) engine.Topology {
	s := survey(d, all, e.image(d))
	t := engine.Topology{Epoch: s.epoch, Members: s.names()}
	if d.Spec.Maintenance.Hibernated || d.Spec.Maintenance.Paused {
		return t
	}
	if missing := s.missing(); len(missing) > 0 {
		t.Members = s.sorted(append(t.Members, missing...))
		t.Reason = fmt.Sprintf("adding %s", list(missing))
		return t
	}
	if surplus := len(all) - int(replicas(d)); surplus > 0 {
		return s.shrink(t)
	}
	return s.roll(t, e.parameters(d))
}

// seen is what Next goes by.
type seen struct {
	database string
	want     int
	image    string
	epoch    int64
	members  []engine.Member
	leader   *engine.Member
	fenced   []string
}

func survey(d *v1.Database, all []engine.Member, image string) seen {
	s := seen{database: d.Name, want: int(replicas(d)), image: image, fenced: d.Spec.Maintenance.Fenced, members: slices.Clone(all)}
	sort.Slice(s.members, func(i, j int) bool { return s.members[i].Ordinal < s.members[j].Ordinal })
	for i := range s.members {
		if r := s.members[i].Report; r != nil {
			s.epoch = max(s.epoch, r.Epoch)
		}
		if s.members[i].Leader {
			s.leader = &s.members[i]
		}
	}
	return s
}

func (s seen) names() []string {
	var all []string
	for _, m := range s.members {
		all = append(all, m.Name)
	}
	return all
}

// sorted by ordinal: orders-10 comes after orders-9.
func (s seen) sorted(names []string) []string {
	ordinal := func(name string) int {
		n, err := strconv.Atoi(name[min(len(name), len(s.database)+1):])
		if err != nil {
			return 0
		}
		return n
	}
	sort.Slice(names, func(i, j int) bool { return ordinal(names[i]) < ordinal(names[j]) })
	return names
}

// missing are the names to add, by the lowest free ordinals.
func (s seen) missing() []string {
	taken := map[int32]bool{}
	for _, m := range s.members {
		taken[m.Ordinal] = true
	}
	var all []string
	for n := int32(1); len(s.members)+len(all) < s.want; n++ {
		if !taken[n] {
			all = append(all, InstanceName(s.database, n))
		}
	}
	return all
}

func (s seen) isFenced(m engine.Member) bool {
	return slices.Contains(s.fenced, m.Name) || slices.Contains(s.fenced, "*")
}

// healthy serves in its role and is in step.
func (s seen) healthy(m engine.Member) bool {
	r := m.Report
	if r == nil || !r.Ready || s.isFenced(m) {
		return false
	}
	if m.Leader {
		return r.Role == engine.Primary
	}
	return r.Role == engine.Replica && r.LagBytes >= 0 && r.LagBytes <= maxLag
}

// shrink takes the highest ordinal that does not lead, unless the healthy among those that stay would be no majority: then the
// first whose going leaves one.
func (s seen) shrink(t engine.Topology) engine.Topology {
	if s.leader == nil {
		t.Reason = "waiting for a leader before an instance is removed"
		return t
	}
	for _, m := range slices.Backward(s.members) {
		if m.Leader || !s.majorityWithout(m.Name) {
			continue
		}
		t.Members = slices.DeleteFunc(t.Members, func(name string) bool { return name == m.Name })
		t.Reason = fmt.Sprintf("removing %s", m.Name)
		return t
	}
	t.Reason = "waiting for instances to become ready: removing one now would leave no majority of ready ones"
	return t
}

func (s seen) majorityWithout(name string) bool {
	stay, healthy := 0, 0
	for _, m := range s.members {
		if m.Name == name {
			continue
		}
		stay++
		if s.healthy(m) {
			healthy++
		}
	}
	return healthy > stay/2
}

// needsRestart, by parameters or by image.
func (s seen) needsRestart(m engine.Member) bool {
	if m.Image != "" && m.Image != s.image {
		return true
	}
	return m.Report != nil && len(m.Report.RestartPending) > 0
}

// roll plans the next restart.
func (s seen) roll(t engine.Topology, wanted map[string]string) engine.Topology {
	var waiting []engine.Member
	for _, m := range s.members {
		if s.needsRestart(m) && !s.isFenced(m) {
			waiting = append(waiting, m)
		}
	}
	if len(waiting) == 0 {
		t.Reason = s.heldBack(wanted)
		return t
	}
	if s.leader == nil {
		t.Reason = "waiting for a leader before " + list(memberNames(waiting)) + " is restarted"
		return t
	}
	for _, m := range waiting {
		if m.Leader {
			continue
		}
		return s.restart(t, m, "replicas first")
	}
	return s.rollLeader(t, wanted)
}

// heldBack names a member that still runs with another value of a parameter that changes in order: it needs no restart yet, only
// because it has not been given the new value yet.
func (s seen) heldBack(wanted map[string]string) string {
	for _, m := range s.members {
		for _, name := range Sensitive() {
			runs, known := running(m, name)
			want, err := strconv.ParseInt(wanted[name], 10, 64)
			if known && err == nil && runs != want && !s.isFenced(m) {
				return fmt.Sprintf("waiting for %s to run with %s = %d", m.Name, name, want)
			}
		}
	}
	return ""
}

func (s seen) restart(t engine.Topology, m engine.Member, why string) engine.Topology {
	if other := s.unhealthyBeside(m.Name); other != "" {
		t.Reason = fmt.Sprintf("waiting for %s to become ready before %s is restarted", other, m.Name)
		return t
	}
	t.Restart = m.Name
	t.Reason = fmt.Sprintf("restarting %s: %s", m.Name, why)
	return t
}

// rollLeader hands over first, except where that gains nothing: there is nobody else, or a parameter is lowered that no replica
// may have lower than the one that leads.
func (s seen) rollLeader(t engine.Topology, wanted map[string]string) engine.Topology {
	if len(s.members) == 1 {
		return s.restart(t, *s.leader, "the only instance")
	}
	if name := s.lowered(wanted); name != "" {
		return s.restart(t, *s.leader, name+" is lowered on the primary first")
	}
	if other := s.unhealthyBeside(s.leader.Name); other != "" {
		t.Reason = fmt.Sprintf("waiting for %s to become ready before the leadership of %s is handed over", other, s.leader.Name)
		return t
	}
	best := s.successor()
	if best == "" {
		return s.restart(t, *s.leader, "no replica can take over")
	}
	t.Switchover = best
	t.Reason = fmt.Sprintf("handing over from %s to %s before %s is restarted", s.leader.Name, best, s.leader.Name)
	return t
}

// lowered is a sensitive parameter that waits on the leader to become less.
func (s seen) lowered(wanted map[string]string) string {
	if s.leader.Report == nil {
		return ""
	}
	for _, name := range Sensitive() {
		want, err := strconv.ParseInt(wanted[name], 10, 64)
		runs, known := running(*s.leader, name)
		if err == nil && known && want < runs && slices.Contains(s.leader.Report.RestartPending, name) {
			return name
		}
	}
	return ""
}

func (s seen) unhealthyBeside(name string) string {
	for _, m := range s.members {
		if m.Name != name && !s.isFenced(m) && !s.healthy(m) {
			return m.Name
		}
	}
	return ""
}

// successor is the best replica: a voter in step, least behind, then by name.
func (s seen) successor() string {
	var best *engine.Member
	for i, m := range s.members {
		if m.Leader || !m.Voter || !s.healthy(m) || s.needsRestart(m) {
			continue
		}
		if best == nil || m.Report.LagBytes < best.Report.LagBytes {
			best = &s.members[i]
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

func memberNames(all []engine.Member) []string {
	names := make([]string, 0, len(all))
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

func list(names []string) string {
	out := ""
	for i, name := range names {
		if i > 0 {
			out += ", "
		}
		out += name
	}
	return out
}
