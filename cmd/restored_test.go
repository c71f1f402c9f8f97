package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// told is an API server that answers with one version after the other; an empty one is an error.
type told struct {
	coordinationclient.LeaseInterface
	versions []string
}

func (a *told) Leases(string) coordinationclient.LeaseInterface { return a }

func (a *told) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	next := a.versions[0]
	a.versions = a.versions[1:]
	if next == "" {
		return nil, errors.New("the API server is away")
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "plimsoll-system", Name: "plimsoll-manager", ResourceVersion: next}}, nil
}

func (a *told) Update(ctx context.Context, _ *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return a.Get(ctx, "", metav1.GetOptions{})
}

func TestVersionsThatWentBack(t *testing.T) {
	for sentence, row := range map[string]struct {
		versions []string
		want     int
	}{
		"versions grow":                   {[]string{"7", "8", "8", "10"}, 0},
		"an outage is no going back":      {[]string{"7", "", "", "8"}, 0},
		"a lower one is told, once":       {[]string{"7", "1000", "999", "998"}, 1},
		"versions may leap":               {[]string{"7", "1000000007"}, 0},
		"what is no number tells nothing": {[]string{"abc", "7", "abc"}, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := 0
			l := &leases{LeasesGetter: &told{versions: row.versions}, back: func(error) { got++ }, most: time.Minute}
			for range row.versions {
				_, _ = l.Leases("plimsoll-system").Get(t.Context(), "plimsoll-manager", metav1.GetOptions{}) // errors are the election's
			}
			if got != row.want {
				t.Errorf("told %d times, want %d", got, row.want)
			}
		})
	}
}

// hanging is an API server that answers at once for a while, and then nothing: each request ends with its time-out.
type hanging struct {
	coordinationclient.LeaseInterface
	lease    *coordinationv1.Lease
	until    time.Time
	accepted time.Time
}

func (a *hanging) Leases(string) coordinationclient.LeaseInterface { return a }

func (a *hanging) answer(ctx context.Context) error {
	if time.Now().Before(a.until) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

func (a *hanging) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := a.answer(ctx); err != nil {
		return nil, err
	}
	return a.lease.DeepCopy(), nil
}

func (a *hanging) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := a.answer(ctx); err != nil {
		return nil, err
	}
	a.lease, a.accepted = lease.DeepCopy(), time.Now()
	return lease, nil
}

// TestAManagerThatCannotRenewEndsBeforeAnotherActs by the times that ship, with the election's own code.
func TestAManagerThatCannotRenewEndsBeforeAnotherActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const duration, deadline, pause = 3 * time.Second, 2 * time.Second, 400 * time.Millisecond
		api := &hanging{lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}, until: time.Now().Add(10 * time.Second)}
		var ended time.Time
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          &resourcelock.LeaseLock{Client: &leases{LeasesGetter: api, back: func(error) {}, most: deadline + pause}, LockConfig: resourcelock.ResourceLockConfig{Identity: "a"}},
			LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: pause, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() { ended = time.Now() }},
		})
		if err != nil {
			t.Fatal(err)
		}
		elector.Run(t.Context())
		if took := ended.Sub(api.accepted); took >= duration || took < deadline {
			t.Errorf("it ended %s after its last renewal, and another may act after %s", took, duration)
		}
	})
}

// TestManagerStartsAnewAfterEtcdWasRestored on a real API server, whose versions go back: its watches would hear of nothing.
func TestManagerStartsAnewAfterEtcdWasRestored(t *testing.T) {
	bin := built(t)
	dir := t.TempDir()
	api, err := cluster.StartAPI(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { api.Stop() }()
	prepare(t, api)
	probes := freeAddress(t)
	var log bytes.Buffer
	manager := exec.CommandContext(t.Context(), bin, "manager", "--agent-image=registry.test/plimsoll:v1", "--webhook=false",
		"--metrics-bind-address=0", "--health-probe-bind-address="+probes,
		"--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m") // an API server that is away for a while is no reason to end
	manager.Env = append(os.Environ(), "KUBECONFIG="+api.Kubeconfig)
	manager.Stdout, manager.Stderr = &log, &log
	if err := manager.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Wait() }()
	defer func() { _ = manager.Process.Kill() }()
	within(t, "the manager to be ready", func() error { return ready("http://" + probes + "/readyz") })
	if err := api.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second) // it renews its lead a few times, which the backup does not hold
	select {
	case err := <-ended:
		t.Fatalf("the manager does not outlive an API server that is away for a moment: %v\n%s", err, log.String())
	default:
	}
	if err := api.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	restored := time.Now()
	select {
	case err := <-ended:
		if !strings.Contains(log.String(), "etcd was restored from a backup") || err == nil {
			t.Errorf("it ended with %v\n%s", err, log.String())
		}
		t.Logf("it ended %s after the API server was back", time.Since(restored).Round(time.Millisecond))
	case <-time.After(time.Minute):
		t.Error("the manager goes on with what it knows from before")
	}
}
