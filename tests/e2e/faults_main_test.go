package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

const (
	peerHere = "; best known: CloudNativePG, median of 3 runs, one client"
	// frozen is how long a frozen pod stays so.
	frozen = 20 * time.Second
	// aloneFor is how long a primary that is cut off stays alive and cut off: past every deadline that it may have.
	aloneFor = 10 * time.Second
)

// mainEvents are those that people expect a failover for.
func mainEvents() []event {
	return []event{
		{
			Event: faults.Event{Name: "process-kill", Target: 2, Peer: 4.9, Note: "SIGKILL of the postmaster alone" + peerHere},
			main:  true, inside: true, before: loaded, hurt: killPostmaster,
		},
		{
			Event:  faults.Event{Name: "process-kill-all", Target: 2, Peer: 4.9, Note: "SIGKILL of every process of the server at once" + peerHere},
			before: loaded, hurt: func(ctx context.Context, s *scene) error {
				_, err := s.cluster.KillProcesses(ctx, s.key.Namespace, s.leader.Name, ofServer, syscall.SIGKILL)
				return err
			},
		},
		{
			Event: faults.Event{Name: "pod-delete", Target: 5, Peer: 22.6, Note: "the primary's pod deleted by force, grace 0" + peerHere + ", synchronous"},
			main:  true, inside: true, hurt: func(ctx context.Context, s *scene) error { return s.deletePod(ctx, s.leader.Name) },
		},
		{
			Event: faults.Event{Name: "node-loss", Target: 6, Peer: 45, Note: "the primary's node loses power" + peerHere + ", synchronous, node grace 16 s"},
			main:  true, hurt: powerOff(theLeader), mend: powerOn(theLeader),
		},
		{
			Event: faults.Event{Name: "partition", Target: 6, Note: "the primary's node is cut off from everybody for 10 s, alive, with clients of its own"},
			main:  true, hurt: func(ctx context.Context, s *scene) error { return s.cluster.Partition(ctx, s.leader.Node) }, mend: heal, hold: aloneFor,
		},
		{
			Event: faults.Event{Name: "freeze", Target: 6, Peer: 27, Note: "every process of the primary's pod frozen for 20 s" + peerHere + ": the freeze and 7 s"},
			main:  true, inside: true, hold: frozen,
			hurt: func(ctx context.Context, s *scene) error {
				return s.cluster.FreezePod(ctx, s.key.Namespace, s.leader.Name)
			},
			mend: func(ctx context.Context, s *scene) error {
				return s.cluster.ThawPod(ctx, s.key.Namespace, s.leader.Name)
			},
		},
		{
			Event: faults.Event{Name: "storage-hang", Target: 8, Note: "every write to the primary's volume waits"},
			main:  true,
			hurt: func(ctx context.Context, s *scene) error {
				return s.cluster.HangVolume(ctx, s.key.Namespace, s.leader.Name)
			},
			mend: func(ctx context.Context, s *scene) error {
				return s.cluster.ThawVolume(ctx, s.key.Namespace, s.leader.Name)
			},
		},
		{
			Event: faults.Event{Name: "switchover", Target: 1, Peer: 8.9, Note: "a planned switchover" + peerHere + ", synchronous"},
			main:  true, inside: true, hurt: switchover,
		},
	}
}

// theLeader's and the replicas' places, by the roles before the fault.
func theLeader(s *scene) []string { return []string{s.leader.Node} }

func powerOff(who func(*scene) []string) func(context.Context, *scene) error {
	return func(ctx context.Context, s *scene) error {
		return inParallel(who(s), func(node string) error { return s.cluster.PowerOff(ctx, node) })
	}
}

func powerOn(who func(*scene) []string) func(context.Context, *scene) error {
	return func(ctx context.Context, s *scene) error {
		return inParallel(who(s), func(node string) error {
			return errors.Join(s.cluster.PowerOn(ctx, node), s.cluster.WaitNode(ctx, node, true, time.Minute))
		})
	}
}

func inParallel(names []string, f func(string) error) error {
	failed := make(chan error, len(names))
	for _, name := range names {
		go func() { failed <- f(name) }()
	}
	var all error
	for range names {
		all = errors.Join(all, <-failed)
	}
	return all
}

func heal(ctx context.Context, s *scene) error { return s.cluster.Heal(ctx) }

func killPostmaster(ctx context.Context, s *scene) error {
	return s.cluster.KillProcess(ctx, s.key.Namespace, s.leader.Name, "bin/postgres", syscall.SIGKILL)
}

// ofServer says that a process of a pod is the database's.
func ofServer(p cluster.Process) bool {
	return strings.Contains(p.Command, "postgres") && !strings.Contains(p.Command, "plimsoll-agent")
}

func switchover(ctx context.Context, s *scene) error {
	answer := s.ask(v1.AnnotationSwitchover, s.replicas[0].Name, time.Minute)
	if answer.State != v1.RequestDone {
		return fmt.Errorf("switchover to %s: %s: %s", s.replicas[0].Name, answer.State, answer.Message)
	}
	return nil
}

// deletePod as kubectl delete --force --grace-period=0 does.
func (d *database) deletePod(ctx context.Context, name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: name}}
	return d.Delete(ctx, pod, client.GracePeriodSeconds(0))
}

// loaded writes a gigabyte of log since the last checkpoint where the volumes have the room: what a crash would have to recover.
func loaded(ctx context.Context, s *scene) error {
	now, err := s.get(ctx)
	if err != nil {
		return err
	}
	if now.Spec.Parameters["max_wal_size"] == "" {
		return nil
	}
	config, err := s.writable(ctx)
	if err != nil {
		return err
	}
	return wrote(ctx, config, 1<<30)
}

// whole makes the cluster as it was before any fault, whatever an earlier run left.
func whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	c := shared.cluster
	if err := errors.Join(c.Heal(ctx), c.StartAPIServer(ctx)); err != nil {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := shared.List(ctx, nodes); err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if !slices.Contains(c.Nodes(), n.Name) {
			continue // of an interrupted TestBesideCrowd, which nobody runs
		}
		if err := errors.Join(c.PowerOn(ctx, n.Name), c.WaitNode(ctx, n.Name, true, time.Minute)); err != nil {
			return err
		}
		if n.Spec.Unschedulable {
			if _, err := c.Kubectl(ctx, "", "uncordon", n.Name); err != nil {
				return err
			}
		}
	}
	return errors.Join(c.StartPolicyAgents(ctx), managers(ctx, 2))
}
