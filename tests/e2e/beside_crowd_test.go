package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	controller "github.com/plimsoll-dev/plimsoll-operator/controllers/database"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/crowd"
)

const (
	crowdNamespace = "e2e-beside-crowd"
	// crowdStep is how many Databases are made at a time, and stepLimit how long these may take to be Ready.
	crowdStep = 50
	stepLimit = 10 * time.Minute
	// spareMemory is what the machine must have left for more of them.
	spareMemory = 2 << 30
	// The crowd is idle when nothing of it has changed for stillFor; the cluster's controllers take a while to come to rest.
	stillFor   = 30 * time.Second
	stillLimit = 30 * time.Minute
	// clearLimit of each of: the namespace, the volumes.
	clearLimit = 20 * time.Minute
)

// throng is a crowd of Databases on the cluster.
type throng struct {
	client.Client
	calls  *http.Client
	seen   cache.Cache
	agents *crowd.Agents
	moved  atomic.Int64 // when something of it changed last, in Unix nanoseconds
}

// gather a crowd of idle Databases, for the rest of the test, and say how many there are: what fits, at most those that are asked for.
func gather(t *testing.T, most int) int {
	t.Helper()
	c, err := newThrong()
	if err != nil {
		t.Fatalf("gather a crowd: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		c.agents.Stop()
		group.Wait()
		utilnet.CloseIdleConnectionsFor(c.calls.Transport)
	})
	if err := reached(t.Context()); err != nil {
		t.Fatal(err)
	}
	early, done := context.WithTimeout(t.Context(), 2*clearLimit)
	defer done()
	// Of an interrupted run. Without their node, the pods end by themselves.
	if err := errors.Join(crowd.Unregister(early, c), c.clear(early)); err != nil {
		t.Fatalf("clear away an earlier crowd: %v", err)
	}
	t.Cleanup(func() {
		late, done := lateContext(2 * clearLimit)
		defer done()
		began := time.Now()
		if err := errors.Join(c.clear(late), crowd.Unregister(late, c)); err != nil {
			t.Errorf("clear away the crowd: %v", err)
		}
		t.Logf("the crowd is gone after %s", time.Since(began).Round(time.Second))
	})
	group.Go(func() { _ = c.seen.Start(ctx) })
	group.Go(func() { crowd.Beat(ctx, c) }) // before there is a node: it has no time to lose
	if err := c.begin(ctx, t.Context()); err != nil {
		t.Fatalf("begin a crowd: %v", err)
	}
	n := c.grow(t, most)
	c.rest(t)
	return n
}

// newThrong has connections of its own: the suite's are slow on purpose.
func newThrong() (*throng, error) {
	config, err := clientcmd.BuildConfigFromFlags("", shared.cluster.InsideKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", shared.cluster.InsideKubeconfig(), err)
	}
	config.QPS = -1
	c := &throng{}
	if c.calls, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	if c.Client, err = client.New(config, client.Options{Scheme: shared.Scheme(), HTTPClient: c.calls}); err != nil {
		return nil, err
	}
	options, err := controller.CacheOptions([]string{crowdNamespace}) // as slim as the manager's
	if err != nil {
		return nil, err
	}
	options.Scheme, options.HTTPClient = shared.Scheme(), c.calls
	if c.seen, err = cache.New(config, options); err != nil {
		return nil, err
	}
	c.agents, err = crowd.Listen()
	return c, err
}

// lateContext is for what follows the test.
func lateContext(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

// reached says whether a connection from each node to the first played address comes to the agents here.
func reached(ctx context.Context) error {
	address, err := cluster.PlayedPod(1)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, node := range shared.cluster.Nodes() {
		dial, err := shared.cluster.DialFrom(node)
		if err != nil {
			return err
		}
		conn, err := dial(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(engine.AgentPort)))
		if err != nil {
			return fmt.Errorf("simulated agents are not reached, perhaps because the cluster is of an older build, so take it down: %w", err)
		}
		_ = conn.Close() // nothing was said
	}
	return nil
}

// begin with a node, a namespace, and those who look after the pods and claims there: they go on until the first context ends.
func (c *throng) begin(ctx, test context.Context) error {
	test, cancel := context.WithTimeout(test, 2*time.Minute)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: crowdNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := c.Create(test, ns); err != nil {
		return fmt.Errorf("make the namespace %s: %w", crowdNamespace, err)
	}
	if err := crowd.Register(test, c); err != nil {
		return err
	}
	if !c.seen.WaitForCacheSync(test) {
		return fmt.Errorf("watch the namespace %s: %w", crowdNamespace, test.Err())
	}
	kubelet := &crowd.Kubelet{Client: c, Agents: c.agents, Node: crowd.NodeName, Address: cluster.PlayedPod}
	return errors.Join(kubelet.Attend(ctx, c.seen), crowd.Volumes{Client: c}.Attend(ctx, c.seen), c.watch(ctx))
}

// watch for changes of what an idle Database would not have changed.
func (c *throng) watch(ctx context.Context) error {
	kinds := []client.Object{&v1.Database{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &coordinationv1.Lease{}}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Service"), discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	} {
		named := &metav1.PartialObjectMetadata{}
		named.SetGroupVersionKind(kind)
		kinds = append(kinds, named)
	}
	first, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	note := func() { c.moved.Store(time.Now().UnixNano()) }
	for _, kind := range kinds {
		informer, err := c.seen.GetInformer(first, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { note() }, DeleteFunc: func(any) { note() },
			UpdateFunc: func(old, now any) {
				before, ok1 := old.(client.Object)
				after, ok2 := now.(client.Object)
				if !ok1 || !ok2 || before.GetResourceVersion() != after.GetResourceVersion() {
					note()
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

// idle is a Database of the crowd that nobody uses.
func idle(i int) *v1.Database {
	return &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: crowdNamespace, Name: fmt.Sprintf("idle-%d", i)}, Spec: v1.DatabaseSpec{
		Engine: v1.EnginePostgres, Version: crowd.Version, Replicas: ptr.To(int32(3)), DeletionPolicy: v1.DeletionDelete,
		Storage: v1.StorageSpec{Size: resource.MustParse("1Gi"), Class: ptr.To("")}, Scheduling: crowd.Scheduling(),
	}}
}

// grow until there are so many, or no more fit, and say how many are Ready. Those that do not become so are deleted.
func (c *throng) grow(t *testing.T, most int) int {
	t.Helper()
	began, made := time.Now(), 0
	for made < most {
		free, err := freeMemory()
		if err != nil {
			t.Fatal(err)
		}
		if free < spareMemory {
			t.Logf("the machine has %d MiB left: the crowd stays at %d of %d Databases", free>>20, made, most)
			return made
		}
		for next := min(made+crowdStep, most); made < next; made++ {
			c.add(t, made)
		}
		var late []*v1.Database
		err = untilEvery(t.Context(), time.Second, stepLimit, func() (problem error) {
			late, problem = c.unready(t.Context(), made)
			return problem
		})
		if err != nil {
			t.Logf("the crowd stays at %d of %d Databases, of which the others do not become Ready: %v", made-len(late), made, err)
			for _, d := range late {
				if err := c.Delete(t.Context(), d); client.IgnoreNotFound(err) != nil {
					t.Errorf("delete Database %s, which does not become Ready: %v", d.Name, err)
				}
			}
			return made - len(late)
		}
		t.Logf("%d Databases Ready after %s, %d streams of reports, %d MiB of the machine's memory left", made, time.Since(began).Round(time.Second), c.agents.Streams(), free>>20)
	}
	return made
}

// add a Database. A busy webhook may be late once.
func (c *throng) add(t *testing.T, i int) {
	t.Helper()
	eventually(t.Context(), t, 2*time.Minute, fmt.Sprintf("Database %d of the crowd made", i), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := c.Create(ctx, idle(i)); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// unready are those of so many Databases that are not Ready, by the cache; the error tells of one of them, and is nil if there is none.
func (c *throng) unready(ctx context.Context, of int) ([]*v1.Database, error) {
	var all v1.DatabaseList
	if err := c.seen.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	ready, states := map[string]bool{}, map[string]v1.DatabaseStatus{}
	for i := range all.Items {
		name, status := all.Items[i].Name, all.Items[i].Status
		ready[name], states[name] = meta.IsStatusConditionTrue(status.Conditions, v1.ConditionReady), status
	}
	var late []*v1.Database
	for i := range of {
		if d := idle(i); !ready[d.Name] {
			late = append(late, d)
		}
	}
	if len(late) == 0 {
		return nil, nil
	}
	example := late[0].Name
	return late, fmt.Errorf("%d of %d are not Ready, among them %s: phase %q, %+v", len(late), of, example, states[example].Phase, states[example].Conditions)
}

// rest waits until nothing of the crowd changes any more.
func (c *throng) rest(t *testing.T) {
	t.Helper()
	began := time.Now()
	err := untilEvery(t.Context(), time.Second, stillLimit, func() error {
		if ago := time.Since(time.Unix(0, c.moved.Load())); ago < stillFor {
			return fmt.Errorf("something of it changed %s ago", ago.Round(time.Second))
		}
		return nil
	})
	if err != nil {
		t.Errorf("the crowd does not come to rest, so what is measured is not beside idle Databases: %v", err)
	}
	t.Logf("the crowd is at rest after %s, with %d streams of reports", time.Since(began).Round(time.Second), c.agents.Streams())
}

// clear away all that there is of a crowd, this or an earlier one, but for its node.
func (c *throng) clear(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: crowdNamespace}}
	if err := c.Delete(ctx, ns); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace %s: %w", crowdNamespace, err)
	}
	err := untilEvery(ctx, time.Second, clearLimit, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("namespace %s is still there: %+v", crowdNamespace, ns.Status.Conditions)
	})
	bounded, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	return errors.Join(err, crowd.Volumes{Client: c}.Remove(bounded))
}

// freeMemory of the machine in bytes, with what the kernel would give back.
func freeMemory() (int64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("ask for the free memory: %w", err)
	}
	defer func() { _ = file.Close() }() // read only: nothing to lose
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("ask for the free memory: /proc/meminfo has no line MemAvailable")
}
