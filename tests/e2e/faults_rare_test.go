package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

const (
	// apiAway is how long the API server is stopped.
	apiAway = time.Minute
	// slowFor is how long a slow primary stays slow.
	slowFor = 5 * time.Minute
	// watched is how long a fault that should change nothing is watched.
	watched = 15 * time.Second
)

// rareEvents are all others.
func rareEvents() []event {
	all := append(networkEvents(), controlEvents()...)
	all = append(all, slowEvents()...)
	all = append(all, changeEvents()...)
	all = append(all, pairEvents()...)
	all = append(all, etcdEvents()...)
	for _, e := range mainEvents() {
		if e.main && e.Name != "switchover" { // which is asked of the manager
			all = append(all, withoutManager(e))
		}
	}
	for _, k := range []struct {
		kind  string
		loses bool
		spec  func(*v1.Database)
	}{
		{"five", false, func(d *v1.Database) { d.Spec.Replicas = ptr.To[int32](5) }},
		{"preferred", false, func(d *v1.Database) { d.Spec.Replication.Synchronous = v1.SynchronousPreferred }},
		{"none", true, func(d *v1.Database) { d.Spec.Replication.Synchronous = v1.SynchronousNone }},
	} {
		for _, e := range mainEvents() {
			if e.main {
				e.Note = k.kind + ": " + e.Note
				e.Name, e.main, e.kind, e.spec, e.loses = k.kind+"-"+e.Name, false, k.kind, k.spec, k.loses
				all = append(all, e)
			}
		}
	}
	return all
}

// withoutManager is the same event with the manager scaled to zero.
func withoutManager(e event) event {
	before, mend := e.before, e.mend
	e.Name, e.main, e.inside = "no-manager-"+e.Name, e.Name == "process-kill", false
	e.Note = "no manager runs: " + e.Note
	e.before = func(ctx context.Context, s *scene) error {
		if before != nil {
			if err := before(ctx, s); err != nil {
				return err
			}
		}
		return managers(ctx, 0)
	}
	e.mend = func(ctx context.Context, s *scene) error {
		err := managers(ctx, 2)
		if mend != nil {
			err = errors.Join(err, mend(ctx, s))
		}
		return err
	}
	return e
}

// managers scales the manager and waits until as many run.
func managers(ctx context.Context, n int32) error {
	key := client.ObjectKey{Namespace: managerNamespace, Name: "plimsoll-manager"}
	d := &appsv1.Deployment{}
	if err := shared.Get(ctx, key, d); err != nil {
		return err
	}
	if ptr.Deref(d.Spec.Replicas, 1) != n {
		was := d.DeepCopy()
		d.Spec.Replicas = ptr.To(n)
		if err := shared.Patch(ctx, d, client.MergeFrom(was)); err != nil {
			return fmt.Errorf("scale the manager to %d: %w", n, err)
		}
	}
	return until(ctx, 90*time.Second, func() error {
		if err := shared.Get(ctx, key, d); err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.Replicas != n || d.Status.ReadyReplicas != n {
			return fmt.Errorf("%d managers, %d ready, want %d", d.Status.Replicas, d.Status.ReadyReplicas, n)
		}
		return nil
	})
}

const managerNamespace = "plimsoll-system"

// until tries a check until it holds; its last error is that of the time-out.
func until(ctx context.Context, limit time.Duration, check func() error) error {
	return untilEvery(ctx, 20*time.Millisecond, limit, check)
}

// untilEvery is the same for what is not worth a look each moment.
func untilEvery(ctx context.Context, pause, limit time.Duration, check func() error) error {
	limit = patient(limit)
	for began := time.Now(); ; {
		err := check()
		if err == nil {
			return nil
		}
		if time.Since(began) > limit || ctx.Err() != nil {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
		time.Sleep(pause)
	}
}

// networkEvents cut the primary's node from some, in some direction. Applications are in the place called control.
func networkEvents() []event {
	cut := func(which func(s *scene) [][2]string) func(context.Context, *scene) error {
		return func(ctx context.Context, s *scene) error {
			for _, c := range which(s) {
				if err := s.cluster.CutOneWay(ctx, c[0], c[1]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	both := func(a, b string) [][2]string { return [][2]string{{a, b}, {b, a}} }
	return []event{
		{
			Event: faults.Event{Name: "cut-one-replica", Note: "the primary and one replica do not reach each other; the other one is enough"},
			calm:  true, hold: watched, mend: heal,
			hurt: cut(func(s *scene) [][2]string { return both(s.leader.Node, s.replicas[0].Node) }),
		},
		{
			Event: faults.Event{Name: "cut-replicas", Note: "the replicas do not reach each other"},
			calm:  true, hold: watched, mend: heal,
			hurt: cut(func(s *scene) [][2]string { return both(s.replicas[0].Node, s.replicas[1].Node) }),
		},
		{
			why:   []string{silent},
			Event: faults.Event{Name: "one-way-out", Target: 6, Note: "nothing that the primary's node sends arrives anywhere"},
			main:  true,
			hold:  aloneFor, mend: heal,
			hurt: cut(func(s *scene) [][2]string {
				return [][2]string{{s.leader.Node, s.replicas[0].Node}, {s.leader.Node, s.replicas[1].Node}, {s.leader.Node, "control"}}
			}),
		},
		{
			why:   []string{silent, expired},
			Event: faults.Event{Name: "one-way-in", Target: 6, Note: "nothing that is sent to the primary's node arrives"},
			hold:  aloneFor, mend: heal,
			hurt: cut(func(s *scene) [][2]string {
				return [][2]string{{s.replicas[0].Node, s.leader.Node}, {s.replicas[1].Node, s.leader.Node}, {"control", s.leader.Node}}
			}),
		},
		{
			Event: faults.Event{Name: "one-replica-no-api", Note: "the primary reaches one replica, neither the other nor the API server; it leads on, for clients on its node"},
			calm:  true, anybody: true, hold: watched, mend: heal, during: notAllWell,
			hurt: cut(func(s *scene) [][2]string {
				return append(both(s.leader.Node, s.replicas[0].Node), both(s.leader.Node, "control")...)
			}),
		},
		{
			why:   []string{silent},
			Event: faults.Event{Name: "api-no-replica", Target: 6, Note: "the primary reaches the API server and its clients, and no replica"},
			main:  true,
			hold:  aloneFor, mend: heal,
			hurt: cut(func(s *scene) [][2]string {
				return append(both(s.leader.Node, s.replicas[0].Node), both(s.leader.Node, s.replicas[1].Node)...)
			}),
		},
	}
}

// What status says of a leader whose time ran out: in the words of those that heard nothing of it any more, and in its own.
const (
	silent  = "nothing was heard of it any more"
	expired = "expired"
)

// notAllWell waits until status says that something is wrong, and of whom.
func notAllWell(ctx context.Context, s *scene) error {
	return until(ctx, time.Minute, func() error {
		now, err := s.get(ctx)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(now.Status.Conditions, v1.ConditionReady)
		if c == nil || c.Status == metav1.ConditionTrue || !strings.Contains(c.Message, s.leader.Name) && !strings.Contains(c.Message, s.replicas[0].Name) {
			return fmt.Errorf("status says that all is well: %+v", c)
		}
		return nil
	})
}

// controlEvents hurt what is not the database.
func controlEvents() []event {
	return []event{
		{
			Event: faults.Event{Name: "api-server-stopped", Note: "the API server is away for 60 s"},
			calm:  true, hold: apiAway,
			hurt: func(ctx context.Context, s *scene) error { return s.cluster.StopAPIServer(ctx) },
			mend: func(ctx context.Context, s *scene) error { return s.cluster.StartAPIServer(ctx) },
		},
		{
			// After an outage kube-proxy looks again when its back-off is over, up to a minute later, and knows no other primary before: the gap is
			// that of a client that finds the primary by itself.
			Event:   faults.Event{Name: "api-server-stopped-failover", Note: "the postmaster is killed while the API server is away for 15 s: the failover waits for it; Services follow when kube-proxy has found the API server again, which is not in the gap"},
			main:    true,
			anybody: true, patience: 3 * time.Minute, either: true, hurt: killWithoutAPI, after: saysItWaited,
		},
		{
			Event: faults.Event{Name: "leader-manager-killed", Target: 5, Measured: true, Note: "the acting manager's process is killed: until a change of a spec is taken up"},
			calm:  true, hold: watched, hurt: killManager,
		},
		{
			Event: faults.Event{Name: "lease-deleted", Note: "the Lease is deleted"},
			main:  true, inside: true,
			calm: true, hold: watched,
			hurt: func(ctx context.Context, s *scene) error {
				return s.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}})
			},
			after: func(ctx context.Context, s *scene) error {
				l := &coordinationv1.Lease{}
				if err := s.Get(ctx, s.key, l); err != nil {
					return fmt.Errorf("the Lease did not come back: %w", err)
				}
				if got := ptr.Deref(l.Spec.HolderIdentity, ""); got != s.leader.Name {
					return fmt.Errorf("the Lease names %q, want %s", got, s.leader.Name)
				}
				return nil
			},
		},
		{
			Event:  faults.Event{Name: "power-cycle", Note: "all three nodes lose power at one instant and get it back a second later"},
			main:   true,
			either: true, patience: 2 * time.Minute,
			hurt: func(ctx context.Context, s *scene) error {
				if err := powerOff(allNodes)(ctx, s); err != nil {
					return err
				}
				time.Sleep(time.Second)
				return powerOn(allNodes)(ctx, s)
			},
		},
		{
			Event:  faults.Event{Name: "drain", Note: "each node in turn is drained under writes and given back; the gap of each drain, three in a run"},
			either: true, patience: time.Minute, hurt: drainEach,
		},
	}
}

func allNodes(s *scene) []string {
	return []string{s.leader.Node, s.replicas[0].Node, s.replicas[1].Node}
}

// election is the Lease by which one of the managers acts.
func (s *suite) election(ctx context.Context) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	return l, s.Get(ctx, client.ObjectKey{Namespace: managerNamespace, Name: "plimsoll-manager"}, l)
}

// killManager ends the acting manager's process, changes the spec at once, and measures until somebody has taken that up.
func killManager(ctx context.Context, s *scene) error {
	l, err := s.election(ctx)
	if err != nil {
		return err
	}
	pod, _, _ := strings.Cut(ptr.Deref(l.Spec.HolderIdentity, ""), "_")
	if err := s.cluster.KillProcess(ctx, managerNamespace, pod, "manager", syscall.SIGKILL); err != nil {
		return err
	}
	began := time.Now()
	s.change(func(spec *v1.DatabaseSpec) {
		if spec.Parameters == nil {
			spec.Parameters = v1.Parameters{}
		}
		spec.Parameters["work_mem"] = fmt.Sprintf("%dkB", 4096+began.Unix()%1024)
	})
	err = until(ctx, time.Minute, func() error {
		now, err := s.get(ctx)
		if err != nil {
			return err
		}
		if now.Status.ObservedGeneration < now.Generation {
			return errors.New("the change is not taken up")
		}
		return nil
	})
	s.measure = time.Since(began)
	return err
}

// drainEach drains one node after the other, the leader's of that time first, and looks that each costs one change of hands at most.
func drainEach(ctx context.Context, s *scene) error {
	for _, node := range allNodes(s) {
		before, err := s.get(ctx)
		if err != nil {
			return err
		}
		s.parts = append(s.parts, time.Now())
		out, err := s.cluster.Kubectl(ctx, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=50s")
		_, back := s.cluster.Kubectl(ctx, "", "uncordon", node)
		if err := errors.Join(err, back); err != nil {
			return fmt.Errorf("drain %s: %w\n%s", node, err, out)
		}
		s.awaitReady(usualRecovery)
		after, err := s.get(ctx)
		if err != nil {
			return err
		}
		if n := after.Status.Epoch - before.Status.Epoch; n > 1 {
			return fmt.Errorf("the drain of %s changed the leader %d times", node, n)
		}
	}
	return nil
}

// What status says of a leader that was there, and did no work for longer than is allowed: its server's, and its volume's.
const (
	answersNobody = "the server has answered nobody for "
	volumeWaits   = "has taken no write for "
)

// slowEvents make the primary slow, not dead: to go on is right, and so is a failover where a deadline truly passed.
func slowEvents() []event {
	return []event{
		{
			why:    []string{silent, expired, answersNobody},
			Event:  faults.Event{Name: "slow-cpu", Note: "the primary's pod gets 5 percent of one processor for five minutes"},
			either: true, hold: slowFor, patience: 2 * time.Minute, recovery: 5 * time.Minute,
			hurt: func(ctx context.Context, s *scene) error {
				return s.cluster.LimitCPU(ctx, s.key.Namespace, s.leader.Name, 5)
			},
			mend: func(ctx context.Context, s *scene) error {
				return s.cluster.LimitCPU(ctx, s.key.Namespace, s.leader.Name, 0)
			},
		},
		{
			why:    []string{silent, expired, volumeWaits},
			Event:  faults.Event{Name: "slow-disk", Note: "the primary's volume takes 256 KiB a second for five minutes, under more writes than that"},
			either: true, hold: slowFor, patience: 2 * time.Minute, recovery: 5 * time.Minute,
			hurt: func(ctx context.Context, s *scene) error {
				if err := s.cluster.SlowVolume(ctx, s.key.Namespace, s.leader.Name, 256<<10); err != nil {
					return err
				}
				return busy(ctx, s)
			},
			mend: func(ctx context.Context, s *scene) error {
				return s.cluster.SlowVolume(ctx, s.key.Namespace, s.leader.Name, 0)
			},
		},
		{
			why:    []string{silent, expired},
			Event:  faults.Event{Name: "slow-network", Note: "30 percent of the packets from the primary's node are lost for five minutes"},
			either: true, hold: slowFor, patience: 2 * time.Minute, recovery: 5 * time.Minute,
			hurt: func(ctx context.Context, s *scene) error { return s.cluster.Lose(ctx, s.leader.Node, 30) },
			mend: heal,
		},
	}
}

// busy writes more than a slow volume takes, for as long as it is slow: 16 MiB at a time, since a fast leader's replicas would fill their
// volumes with log that they have no time to apply.
func busy(ctx context.Context, s *scene) error {
	config, err := s.writable(ctx)
	if err != nil {
		return err
	}
	go func() {
		for began := time.Now(); ctx.Err() == nil && time.Since(began) < slowFor; time.Sleep(2 * time.Second) {
			_ = wrote(ctx, config, 16<<20) // it may well be refused: the load is what counts
		}
	}()
	return nil
}

// changeEvents hurt a Database in the middle of a change, or in a part of it.
func changeEvents() []event {
	return []event{
		{
			Event:  faults.Event{Name: "backend-kill", Target: 2, Note: "one session's process of the primary is killed, as the kernel does when memory is short"},
			before: loaded,
			hurt: func(ctx context.Context, s *scene) error {
				return s.cluster.KillProcess(ctx, s.key.Namespace, s.leader.Name, "background writer", syscall.SIGKILL)
			},
		},
		{
			Event: faults.Event{Name: "reclone-then-loss", Target: 6, Note: "a replica lost its volume and was copied anew; as soon as it counts again, the primary's node loses power"},
			main:  true,
			amid:  recloned, hurt: powerOff(theLeader), mend: powerOn(theLeader),
		},
		{
			Event:  faults.Event{Name: "scale-3-to-2-then-loss", Note: "scaled from three to two under writes; then the primary's server is killed, and both count"},
			either: true, patience: time.Minute, amid: scaled(2), hurt: killPostmaster, mend: scaled(3), recovery: 4 * time.Minute,
		},
		{
			Event: faults.Event{Name: "scale-3-to-5-then-loss", Target: 6, Note: "scaled from three to five under writes; then the primary's node loses power, with every instance on it"},
			amid:  scaled(5), hurt: powerOff(theLeader), recovery: 4 * time.Minute,
			mend: func(ctx context.Context, s *scene) error {
				return errors.Join(powerOn(theLeader)(ctx, s), scaled(3)(ctx, s))
			},
		},
		{
			Event: faults.Event{Name: "winner-dies", Note: "the postmaster is killed; as soon as the Lease names another leader, that one's agent is killed"},
			main:  true, inside: true,
			either: true, patience: time.Minute, hurt: winnerDies,
		},
		{
			Event: faults.Event{Name: "wal-volume-full", Note: "the volume of the primary's log is full until it grows"},
			main:  true, inside: true,
			calm: true, spec: ownLogVolume, kind: logVolumeKind, recovery: 5 * time.Minute,
			hurt: fillLog, mend: growLog,
		},
	}
}

// logVolumeKind is a Database whose log has a small volume of its own.
const logVolumeKind = "log-volume"

func ownLogVolume(d *v1.Database) {
	d.Spec.Storage.WAL = &v1.VolumeSpec{Size: resource.MustParse("512Mi")}
	d.Spec.Parameters = v1.Parameters{"max_wal_size": "256MB", "min_wal_size": "80MB"}
}

// fillLog fills the volume of the primary's log, writes until nothing more is taken, and waits until status says why.
func fillLog(ctx context.Context, s *scene) error {
	if err := s.cluster.FillVolume(ctx, s.key.Namespace, s.leader.Name+"-wal"); err != nil {
		return err
	}
	config, err := s.writable(ctx)
	if err != nil {
		return err
	}
	writing, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_ = wrote(writing, config, 256<<20) // it must fail; that is the event
	return until(ctx, time.Minute, func() error {
		now, err := s.get(ctx)
		if err != nil {
			return err
		}
		if now.Status.Phase != v1.PhaseDegraded && now.Status.Phase != v1.PhaseDown { // a server that finds no room at all ends, and waits for some
			return fmt.Errorf("the phase is %s", now.Status.Phase)
		}
		return errors.Join(
			condition(now, v1.ConditionReady, metav1.ConditionFalse, v1.ReasonVolumeFull, "full", s.leader.Name),
			s.noted(ctx, v1.ReasonVolumeFull, s.leader.Name+": the volume of the write-ahead log is full: raise spec.storage.wal.size"), // also to whoever looks at events alone
		)
	})
}

func growLog(_ context.Context, s *scene) error {
	s.change(func(spec *v1.DatabaseSpec) { spec.Storage.WAL.Size = resource.MustParse("2Gi") })
	return nil
}

// recloned takes a replica's volume away and waits until the new one counts.
func recloned(ctx context.Context, s *scene) error {
	now, err := s.get(ctx)
	if err != nil {
		return err
	}
	victim := ""
	for _, i := range now.Status.Instances {
		if i.Role == v1.RoleReplica {
			victim = i.Name
		}
	}
	for _, args := range [][]string{{"delete", "pvc", victim, "--wait=false"}, {"delete", "pod", victim, "--wait=false"}} {
		if out, err := s.cluster.Kubectl(ctx, "", append([]string{"-n", s.key.Namespace}, args...)...); err != nil {
			return fmt.Errorf("take the volume of %s: %w\n%s", victim, err, out)
		}
	}
	s.await(usualRecovery, victim+" is noticed to be gone", func(now *v1.Database) error {
		if ready(now) == nil {
			return errors.New("still ready")
		}
		return nil
	})
	s.awaitReady(usualRecovery)
	return nil
}

func scaled(n int32) func(context.Context, *scene) error {
	return func(_ context.Context, s *scene) error {
		s.change(func(spec *v1.DatabaseSpec) { spec.Replicas = ptr.To(n) })
		s.awaitReady(4 * time.Minute)
		return nil
	}
}

// winnerDies kills the leader's server, and the next leader's agent in the moment in which the Lease names it.
func winnerDies(ctx context.Context, s *scene) error {
	if err := killPostmaster(ctx, s); err != nil {
		return err
	}
	l := &coordinationv1.Lease{}
	if err := until(ctx, 20*time.Second, func() error {
		if err := s.Get(ctx, s.key, l); err != nil {
			return err
		}
		if got := ptr.Deref(l.Spec.HolderIdentity, ""); got == s.leader.Name {
			return fmt.Errorf("the Lease still names %s", got)
		}
		return nil
	}); err != nil {
		return err
	}
	return s.cluster.KillProcess(ctx, s.key.Namespace, *l.Spec.HolderIdentity, "plimsoll-agent", syscall.SIGKILL)
}

// wrote has the server write so many bytes of log, as a table that is dropped again.
func wrote(ctx context.Context, config *pgx.ConnConfig, bytes int64) error {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to load the database: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(closing)
	}()
	const row = 1 << 20
	for _, sql := range []string{
		"CREATE TABLE IF NOT EXISTS load (v text)", "ALTER TABLE load ALTER v SET STORAGE EXTERNAL", "TRUNCATE load",
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return fmt.Errorf("load the database: %w", err)
		}
	}
	for range max(bytes/row/16, 1) { // sixteen rows at a time
		if _, err := c.Exec(ctx, "INSERT INTO load SELECT repeat(md5(i::text), 32768) FROM generate_series(1, 16) i"); err != nil {
			return fmt.Errorf("load the database: %w", err)
		}
	}
	if _, err := c.Exec(ctx, "TRUNCATE load"); err != nil {
		return fmt.Errorf("load the database: %w", err)
	}
	return nil
}
