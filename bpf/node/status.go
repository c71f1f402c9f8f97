package node

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status says how far the node's instances are measured: by what they are seen, how many are, and what keeps the others from it.
type Status struct {
	Hooks     map[string]bool
	Instances map[string]int
	Late      int    // of those that wait, how many have for longer than a container and its server take to be found
	Missing   string // empty if all are
}

// Status of now. It waits for a look that is under way.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.family == nil {
		return Status{Missing: "nothing is measured: it has ended"}
	}
	s := n.status()
	var why []string
	if n.syscalls != nil {
		why = append(why, "system calls cannot be hooked: "+n.syscalls.Error())
	}
	if n.connections.refused != nil {
		why = append(why, "connections are not seen: "+n.connections.refused.Error())
	}
	if n.failed > 0 {
		why = append(why, n.said)
	}
	for _, t := range n.targets {
		if n.state(t) == Waiting && time.Since(t.since) > lateAfter {
			s.Late++
		}
		if t.refused != nil {
			why = append(why, fmt.Sprintf("instance %s/%s: %v", t.Namespace, t.Name, t.refused))
		}
		if err := t.troubled(); err != nil {
			why = append(why, fmt.Sprintf("instance %s/%s: %v", t.Namespace, t.Name, err))
		}
	}
	slices.Sort(why)
	s.Missing = strings.Join(why, "; ")
	return s
}

// status without what is missing.
func (n *Node) status() Status {
	s := Status{
		Hooks:     map[string]bool{"syscalls": n.syscalls == nil, "programs": false, "connections": n.connections.family != nil},
		Instances: map[string]int{Measured: 0, Partly: 0, Unseen: 0, Waiting: 0},
	}
	if n.commands.hooks || n.commands.hooked != nil { // else there is no Redis
		s.Hooks["reads"] = n.commands.hooks
	}
	for _, t := range n.targets {
		s.Instances[n.state(t)]++
		if t.program != "" {
			s.Hooks["programs"] = true
		}
	}
	return s
}
