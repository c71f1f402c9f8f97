package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

const (
	// farAhead is what etcd's documentation moves the versions of objects on by, so that no watch mistakes them for what it knows.
	farAhead = 1_000_000_000
	// judged is how long an outcome that a person must mend is watched, to see that nothing mends it wrongly by itself.
	judged = 10 * time.Second
	// mostRestarts of a container that a restored etcd may cost. More is a storm.
	mostRestarts = 2
)

// etcdEvents restore etcd from a backup that knows neither the newest leadership nor what came with it.
func etcdEvents() []event {
	restored := func(ahead uint64) func(context.Context, *scene) error {
		return func(ctx context.Context, s *scene) error { return s.cluster.RestoreEtcd(ctx, ahead) }
	}
	return []event{
		{
			Event: faults.Event{Name: "etcd-restored", Note: "etcd comes back from a backup of before the primary's pod was replaced, its versions moved on"},
			calm:  true, hold: watched, recovery: 4 * time.Minute, patience: time.Minute,
			amid: savedBefore(func(ctx context.Context, s *scene, leader string, _ []string) error { return s.deletePod(ctx, leader) }),
			hurt: restored(farAhead), after: repaired,
		},
		{
			Event: faults.Event{Name: "etcd-rewound", Note: "etcd comes back from a backup of before a switchover, and its versions go back, too: no watch hears of it"},
			calm:  true, hold: watched, recovery: 4 * time.Minute, patience: time.Minute,
			amid: savedBefore(handedOver), hurt: restored(0), after: repaired,
		},
		{
			Event:  faults.Event{Name: "etcd-restored-young-leader", Note: "etcd comes back from a backup that does not know the primary's pod: its node ends it at once, and nobody may lead until a person says who"},
			either: true, recovery: 4 * time.Minute, patience: 2 * time.Minute,
			amid: savedBefore(leadsAnew), hurt: restoredUnderAYoungLeader, after: recoveredFromBackup,
		},
		{
			Event:  faults.Event{Name: "etcd-restored-leader-lost", Note: "the primary's node loses power while etcd comes back from a backup: nobody may lead until a person says who"},
			either: true, recovery: 4 * time.Minute, patience: 2 * time.Minute,
			amid: savedBefore(handedOver), hurt: restoredWithoutLeader, mend: powerOn(theLeader), after: recoveredFromBackup,
		},
	}
}

func handedOver(_ context.Context, s *scene, _ string, replicas []string) error {
	answer := s.ask(v1.AnnotationSwitchover, replicas[0], time.Minute)
	if answer.State != v1.RequestDone {
		return fmt.Errorf("switchover to %s: %s: %s", replicas[0], answer.State, answer.Message)
	}
	return nil
}

// leadsAnew replaces the leader's pod, and gives it the lead again.
func leadsAnew(ctx context.Context, s *scene, leader string, _ []string) error {
	if err := s.deletePod(ctx, leader); err != nil {
		return err
	}
	s.await(usualRecovery, "another leads, and "+leader+" is back", func(now *v1.Database) error {
		if now.Status.Leader == leader {
			return fmt.Errorf("%s leads", leader)
		}
		return ready(now)
	})
	answer := s.ask(v1.AnnotationSwitchover, leader, time.Minute)
	if answer.State != v1.RequestDone {
		return fmt.Errorf("switchover to %s: %s: %s", leader, answer.State, answer.Message)
	}
	return nil
}

// savedBefore takes the backup, and changes hands afterwards.
func savedBefore(change func(ctx context.Context, s *scene, leader string, replicas []string) error) func(context.Context, *scene) error {
	return func(ctx context.Context, s *scene) error {
		if err := s.cluster.SaveEtcd(ctx); err != nil {
			return err
		}
		before, err := s.get(ctx)
		if err != nil {
			return err
		}
		if s.restarts, err = s.restarted(ctx); err != nil {
			return err
		}
		leader, replicas := s.roles()
		if err := change(ctx, s, leader, replicas); err != nil {
			return err
		}
		s.await(usualRecovery, "somebody leads by a newer epoch", func(now *v1.Database) error {
			if now.Status.Epoch <= before.Status.Epoch {
				return fmt.Errorf("%s leads with epoch %d", now.Status.Leader, now.Status.Epoch)
			}
			return ready(now)
		})
		return nil
	}
}

// repaired says that the leader rewrote its Lease, that clients are sent to it, that status tells of it (an event may be lost with the
// manager that ends to look anew), and that nothing was restarted over and over for it.
func repaired(ctx context.Context, s *scene) error {
	if err := until(ctx, time.Minute, func() error {
		now, err := s.get(ctx)
		if err != nil {
			return err
		}
		if now.Status.Epoch <= s.epoch || now.Status.Leader != s.leader.Name || len(now.Status.HandOvers) == 0 {
			return fmt.Errorf("status tells of %s and epoch %d; want %s and more than %d", now.Status.Leader, now.Status.Epoch, s.leader.Name, s.epoch)
		}
		if h := now.Status.HandOvers[0]; h.Cause != "raise" || h.To != s.leader.Name || !strings.Contains(h.Why, "restored") {
			return fmt.Errorf("status tells of %+v", h)
		}
		l := &coordinationv1.Lease{}
		if err := s.Get(ctx, s.key, l); err != nil {
			return err
		}
		if got := ptr.Deref(l.Spec.HolderIdentity, ""); got != s.leader.Name || int64(ptr.Deref(l.Spec.LeaseTransitions, 0)) != now.Status.Epoch {
			return fmt.Errorf("the Lease names %q with epoch %d", got, ptr.Deref(l.Spec.LeaseTransitions, 0))
		}
		return nil
	}); err != nil {
		return err
	}
	return s.calmPods(ctx)
}

// noted says that an event of the Database holds the words.
func (d *database) noted(ctx context.Context, reason, words string) error {
	list := &eventsv1.EventList{}
	if err := d.List(ctx, list, client.InNamespace(d.key.Namespace)); err != nil {
		return err
	}
	for _, e := range list.Items {
		if e.Regarding.Name == d.key.Name && e.Reason == reason && strings.Contains(e.Note, words) {
			return nil
		}
	}
	return fmt.Errorf("no event %s says %q, of %d", reason, words, len(list.Items))
}

// calmPods says that no container was restarted over and over since the backup was taken. The counts are the kubelets', which the backup
// does not set back.
func (s *scene) calmPods(ctx context.Context) error {
	now, err := s.restarted(ctx)
	for name, n := range now {
		if n -= s.restarts[name]; n > mostRestarts {
			err = errors.Join(err, fmt.Errorf("%s was restarted %d times", name, n))
		}
	}
	return err
}

// restarted counts the restarts of the Database's and the manager's containers.
func (d *database) restarted(ctx context.Context) (map[string]int32, error) {
	counts := map[string]int32{}
	for _, namespace := range []string{d.key.Namespace, managerNamespace} {
		pods := &corev1.PodList{}
		if err := d.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		for _, p := range pods.Items {
			for _, c := range p.Status.ContainerStatuses {
				counts[p.Name+"/"+c.Name] = c.RestartCount
			}
		}
	}
	return counts, nil
}

// restoredWithoutLeader takes the leader away in the moment in which etcd is restored.
func restoredWithoutLeader(ctx context.Context, s *scene) error {
	// Without the API server nobody is elected meanwhile.
	if err := errors.Join(s.cluster.StopAPIServer(ctx), s.cluster.PowerOff(ctx, s.leader.Node), s.cluster.RestoreEtcd(ctx, farAhead)); err != nil {
		return err
	}
	return recoveredByAPerson(ctx, s)
}

// restoredUnderAYoungLeader: the API server takes no word from a pod that it does not know, so the leader cannot repair the Lease before
// its node ends it.
func restoredUnderAYoungLeader(ctx context.Context, s *scene) error {
	if err := s.cluster.RestoreEtcd(ctx, farAhead); err != nil {
		return err
	}
	return recoveredByAPerson(ctx, s)
}

// recoveredByAPerson: status says what happened and what to do; nobody leads until that is done, however many instances there are.
func recoveredByAPerson(ctx context.Context, s *scene) error {
	best := ""
	if err := until(ctx, 2*time.Minute, func() error {
		now, err := s.get(ctx)
		if err != nil {
			return err
		}
		if best, err = namedBy(now); err != nil {
			return err
		}
		return s.noted(ctx, v1.ReasonLeaseOlder, "kubectl plimsoll recover")
	}); err != nil {
		return err
	}
	time.Sleep(judged)
	now, err := s.get(ctx)
	if err != nil {
		return err
	}
	if _, err := namedBy(now); err != nil {
		return fmt.Errorf("it passed by itself: %w", err)
	}
	asked := time.Now()
	out, err := s.plimsoll("recover", s.key.Name, "--from", best, "--accept-loss")
	if err != nil {
		return fmt.Errorf("recover from %s: %w\n%s", best, err, out)
	}
	s.measure = time.Since(asked)
	return nil
}

// namedBy is the instance that status names in the command that helps.
func namedBy(now *v1.Database) (string, error) {
	if err := condition(now, v1.ConditionReady, metav1.ConditionFalse, v1.ReasonLeaseOlder, "restored from a backup"); err != nil {
		return "", err
	}
	for _, c := range now.Status.Conditions {
		if found := regexp.MustCompile(`kubectl plimsoll recover \S+ -n \S+ --from (\S+)`).FindStringSubmatch(c.Message); c.Type == v1.ConditionReady && found != nil {
			return found[1], nil
		}
	}
	return "", errors.New("status names no command")
}

func recoveredFromBackup(ctx context.Context, s *scene) error {
	now, err := s.get(ctx)
	if err != nil {
		return err
	}
	if len(now.Status.HandOvers) == 0 || now.Status.HandOvers[0].Cause != "recover" {
		return fmt.Errorf("status tells of %+v", now.Status.HandOvers)
	}
	return nil
}
