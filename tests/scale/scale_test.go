// Package scale measures one manager with a thousand Databases: a real API server, the program that ships, and simulated agents
// (tests/crowd).
package scale

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	machinery "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/database"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/crowd"
)

const (
	// envDatabases makes it a benchmark with that many Databases.
	envDatabases = "PLIMSOLL_BENCH_DATABASES"
	// envProfiles is an address on loopback where the manager serves its profiles while it runs; nowhere by default.
	envProfiles = "PLIMSOLL_BENCH_PROFILES"
	// few Databases are enough to see that all of it works.
	few = 4
	// foreign Secrets and ConfigMaps, half of each, beside the full number of Databases.
	foreign = 10_000
	size    = 3 // instances of each
	// collector is how eager it is, as config/manager has it.
	collector = "25"
	// idleFor is the time for which nobody asks for anything.
	idleFor = 2 * time.Minute
)

// TestScale gives one manager many Databases and measures what it holds, writes and takes for a change. Agents are simulated; the API
// server, etcd and the manager's program are real.
func TestScale(t *testing.T) {
	log.SetLogger(logr.Discard())
	most, record := few, false
	if n, err := strconv.Atoi(os.Getenv(envDatabases)); err == nil {
		most, record = n, true
	}
	s := newStage(t)
	if record {
		s.foreigners(t, foreign)
	}
	m := s.manage(t, "--leader-elect=false")
	var held []string
	for _, n := range steps(most) {
		began := time.Now()
		s.grow(t, n)
		time.Sleep(settling(record))
		held = append(held, fmt.Sprintf("%d Databases: %.1f MiB", n, m.resident(t)))
		t.Logf("%d Databases Ready after %s more, %d streams, the manager holds %.1f MiB", n, time.Since(began).Round(time.Second), s.agents.Streams(), m.resident(t))
	}
	eventually(t, 2*time.Minute, "one stream to each Database is left", func() error {
		if got := s.agents.Streams(); got != most {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
	idle := m.idle(t, quietFor(record))
	reads := s.reads(t)
	served := s.changes(t, min(most, 100))
	if idle.writes > 0 {
		t.Errorf("idle, the manager wrote %d times in %s", idle.writes, quietFor(record))
	}
	t.Logf("idle: %d writes, %.2f cores; cached read p50 %s; change served at most after %s", idle.writes, idle.cores, middle(reads), slices.Max(served))
	if record {
		s.keep(t, most, strings.Join(held, ", "), idle, reads, served)
	}
}

// steps of growth that are told.
func steps(most int) []int {
	var out []int
	for _, n := range []int{10, 100, 1000} {
		if n < most {
			out = append(out, n)
		}
	}
	return append(out, most)
}

func settling(record bool) time.Duration {
	if record {
		return 30 * time.Second
	}
	return 2 * time.Second
}

func quietFor(record bool) time.Duration {
	if record {
		return idleFor
	}
	return 5 * time.Second
}

// stage is an API server and the agents.
type stage struct {
	dir, kubeconfig string
	config          *rest.Config
	direct          client.Client
	cached          cache.Cache
	agents          *crowd.Agents
	made            int
	managers        int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{dir: t.TempDir()}
	api, err := cluster.StartAPI(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Stop)
	s.kubeconfig = api.Kubeconfig
	scheme := machinery.NewScheme()
	for _, add := range []func(*machinery.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s.config = must(clientcmd.BuildConfigFromFlags("", api.Kubeconfig))(t)
	s.config.QPS = -1
	s.direct = must(client.New(s.config, client.Options{Scheme: scheme}))(t)
	s.install(t)
	s.agents = must(crowd.Listen())(t)
	t.Cleanup(s.agents.Stop)
	options := must(database.CacheOptions(nil))(t)
	options.Scheme = scheme
	s.cached = must(cache.New(s.config, options))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = s.cached.Start(ctx) })
	t.Cleanup(func() { cancel(); group.Wait() })
	if err := (&crowd.Kubelet{Client: s.direct, Agents: s.agents, Address: loopback}).Attend(ctx, s.cached); err != nil {
		t.Fatal(err)
	}
	return s
}

// loopback is the address of the n-th pod.
func loopback(n int) (string, error) {
	return fmt.Sprintf("127.%d.%d.%d", 100+n>>14, n>>7&127+1, n&127+1), nil
}

// install the kind and the namespaces.
func (s *stage) install(t *testing.T) {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(must(os.ReadFile("../../config/crd/bases/plimsoll.dev_databases.yaml"))(t), &crd); err != nil {
		t.Fatal(err)
	}
	if err := s.direct.Create(t.Context(), &crd); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plimsoll-system", "shop", "crowd"} {
		if err := s.direct.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "the kind Database is served", func() error { return s.direct.List(t.Context(), &v1.DatabaseList{}) })
}

// foreigners are objects that are nobody's business here, of four KiB each.
func (s *stage) foreigners(t *testing.T, n int) {
	t.Helper()
	text := strings.Repeat("x", 4<<10)
	var group sync.WaitGroup
	ids := make(chan int)
	for range 8 {
		group.Go(func() {
			for i := range ids {
				at := metav1.ObjectMeta{Namespace: "crowd", Name: fmt.Sprintf("foreign-%d", i)}
				var o client.Object = &corev1.Secret{ObjectMeta: at, StringData: map[string]string{"text": text}}
				if i%2 == 0 {
					o = &corev1.ConfigMap{ObjectMeta: at, Data: map[string]string{"text": text}}
				}
				if err := s.direct.Create(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		ids <- i
	}
	close(ids)
	group.Wait()
}

func name(i int) string { return fmt.Sprintf("orders-%d", i) }

// grow to that many Databases and wait until all are Ready.
func (s *stage) grow(t *testing.T, to int) {
	t.Helper()
	for ; s.made < to; s.made++ {
		d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name(s.made)}, Spec: v1.DatabaseSpec{
			Engine: v1.EnginePostgres, Version: crowd.Version, Replicas: new(int32(size)), Storage: v1.StorageSpec{Size: resource.MustParse("1Gi")},
		}}
		if err := s.direct.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 5*time.Minute+time.Duration(to)*time.Second, fmt.Sprintf("%d Databases are Ready", to), func() error {
		var all v1.DatabaseList
		if err := s.cached.List(t.Context(), &all); err != nil {
			return err
		}
		ready, example := 0, ""
		for i := range all.Items {
			if meta.IsStatusConditionTrue(all.Items[i].Status.Conditions, v1.ConditionReady) {
				ready++
			} else {
				example = fmt.Sprintf("%s: %+v", all.Items[i].Name, all.Items[i].Status.Conditions)
			}
		}
		if ready != to {
			return fmt.Errorf("%d are, among the others %s", ready, example)
		}
		return nil
	})
}

// reads times reads of a Database from a cache like the manager's.
func (s *stage) reads(t *testing.T) []time.Duration {
	t.Helper()
	took := make([]time.Duration, 0, 10_000)
	for range cap(took) {
		key := client.ObjectKey{Namespace: "shop", Name: name(rand.IntN(s.made))} //nolint:gosec // any will do
		began := time.Now()
		if err := s.cached.Get(t.Context(), key, &v1.Database{}); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	return took
}

// changes asks for a change of the configuration, one Database after another, and times until all its agents have it.
func (s *stage) changes(t *testing.T, n int) []time.Duration {
	t.Helper()
	var took []time.Duration
	for _, i := range rand.Perm(s.made)[:n] { //nolint:gosec // any will do
		took = append(took, s.change(t, i, "5MB", 30*time.Second))
	}
	return took
}

// change a parameter of one Database, and tell how long it took until all its agents had it.
func (s *stage) change(t *testing.T, i int, value string, limit time.Duration) time.Duration {
	t.Helper()
	d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name(i)}}
	began := time.Now()
	if err := s.direct.Patch(t.Context(), d, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"parameters":{"work_mem":"`+value+`"}}}`))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	at, err := s.agents.Await(ctx, client.ObjectKeyFromObject(d).String(), size, func(a engine.Aim) bool {
		for _, file := range a.Files {
			if strings.Contains(file, "work_mem = '"+value+"'") {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	return at.Sub(began)
}

// manager is the program. It is started again when it ends by itself, as a kubelet does: one that loses its Lease on a busy machine ends.
type manager struct {
	name, metrics string
	ended         chan struct{} // closed when it will not be started again

	mu   sync.Mutex
	pid  int
	over bool
}

// build the manager as the Makefile does.
func (s *stage) build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(s.dir, "plimsoll")
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", bin, "../../cmd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

func (s *stage) manage(t *testing.T, flags ...string) *manager {
	t.Helper()
	s.managers++
	m := &manager{metrics: freeAddress(t), name: fmt.Sprintf("plimsoll-%d", s.managers), ended: make(chan struct{})}
	said := must(os.Create(filepath.Join(s.dir, m.name+".log")))(t)
	bin, args := s.build(t), slices.Concat([]string{
		"manager", "--agent-image=registry.test/plimsoll:v1", "--webhook=false",
		"--metrics-secure=false", "--metrics-bind-address=" + m.metrics, "--health-probe-bind-address=127.0.0.1:0", "--pprof-bind-address=" + os.Getenv(envProfiles),
	}, flags)
	start := func() (*exec.Cmd, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.over {
			return nil, errors.New("it is over")
		}
		run := exec.Command(bin, args...) //nolint:gosec,noctx // built above; end ends it
		run.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "GOMEMLIMIT=460MiB", "GOGC="+collector, "POD_NAME="+m.name)
		run.Stdout, run.Stderr = said, said
		if err := run.Start(); err != nil {
			return nil, fmt.Errorf("start %s: %w", m.name, err)
		}
		m.pid = run.Process.Pid
		return run, nil
	}
	first := must(start())(t)
	go func() {
		defer close(m.ended)
		for run, err := first, error(nil); err == nil; run, err = start() {
			_ = run.Wait() // it says why in its log
			time.Sleep(time.Second)
		}
	}()
	t.Cleanup(func() {
		m.end(t, syscall.SIGTERM)
		select {
		case <-m.ended:
		case <-time.After(30 * time.Second):
			m.end(t, syscall.SIGKILL)
			<-m.ended
		}
		_ = said.Close()
		if raw, _ := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("the manager %s said:\n%s", m.name, raw[max(0, len(raw)-8<<10):])
		}
	})
	return m
}

// end it for good.
func (m *manager) end(t *testing.T, by syscall.Signal) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	if err := syscall.Kill(m.pid, by); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("end %s: %v", m.name, err)
	}
}

func (m *manager) process() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pid
}

// resident memory in MiB.
func (m *manager) resident(t *testing.T) float64 {
	t.Helper()
	for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", m.process())))(t))) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib := must(strconv.Atoi(strings.Fields(rest)[0]))(t)
			return float64(kib) / 1024
		}
	}
	t.Fatal("the manager has no VmRSS")
	return 0
}

// stillness is what the manager does while nobody asks for anything.
type stillness struct {
	writes int
	cores  float64
	held   []float64 // MiB, sampled
	during time.Duration
}

func (m *manager) idle(t *testing.T, during time.Duration) stillness {
	t.Helper()
	writes, used := m.writes(t), m.used(t)
	out := stillness{during: during}
	for range 20 {
		time.Sleep(during / 20)
		out.held = append(out.held, m.resident(t))
	}
	out.writes, out.cores = m.writes(t)-writes, (m.used(t)-used).Seconds()/during.Seconds()
	return out
}

// used processor time so far.
func (m *manager) used(t *testing.T) time.Duration {
	t.Helper()
	raw := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.process())))(t))
	fields := strings.Fields(raw[strings.LastIndex(raw, ")")+1:])
	const user, system, tick = 11, 12, 10 * time.Millisecond // of what follows the name; USER_HZ is 100 everywhere
	return time.Duration(must(strconv.Atoi(fields[user]))(t)+must(strconv.Atoi(fields[system]))(t)) * tick
}

// writes that the manager has sent to the API server.
func (m *manager) writes(t *testing.T) int {
	t.Helper()
	r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.metrics+"/metrics", nil))(t)
	answer := must(http.DefaultClient.Do(r))(t) //nolint:bodyclose // it is, below
	defer func() { _ = answer.Body.Close() }()  // read only: nothing to lose
	sum, lines := 0, bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "rest_client_requests_total{") || strings.Contains(line, `method="GET"`) {
			continue
		}
		sum += int(must(strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64))(t))
	}
	return sum
}

// keep records the figures.
func (s *stage) keep(t *testing.T, databases int, growth string, idle stillness, reads, served []time.Duration) {
	t.Helper()
	of := s.figure(t)
	beside := fmt.Sprintf("%d idle Databases of three simulated agents each, heard over one mTLS stream a Database, beside %d foreign Secrets and ConfigMaps", databases, foreign)
	group := fmt.Sprintf("manager/%d-databases", databases)
	for _, f := range []bench.Figure{
		{Name: group + "-rss", Unit: "MiB", Raw: idle.held, Target: new(150.0), Note: "VmRSS of the manager; " + beside + "; growth: " + growth},
		{Name: group + "-cpu", Unit: "cores", Raw: []float64{idle.cores}, Note: "processor time of the manager in " + idle.during.String() + "; " + beside},
		{Name: "manager/idle-writes", Unit: "1/s", Raw: []float64{float64(idle.writes) / idle.during.Seconds()}, Target: new(0.0), Note: "writes to the API server in " + idle.during.String() + ", without the leader election's; " + beside},
		{Name: "manager/cached-read", Unit: "ms", Raw: milliseconds(reads), Target: new(0.3), Note: "one Database from a cache like the manager's, for its p50; " + beside},
		{Name: "manager/change-served", Unit: "s", Raw: seconds(served), Target: new(2.0), Note: "from a change of spec.parameters until the last of the three agents has it, one Database after another; " + beside},
	} {
		f.Better, f.Machine, f.Commit = of.Better, of.Machine, of.Commit
		if err := bench.Record("../../docs/benchmarks", f); err != nil {
			t.Error(err)
		}
	}
}

// figure is what all of them have in common.
func (s *stage) figure(t *testing.T) bench.Figure {
	t.Helper()
	return bench.Figure{
		Better: "lower", Commit: strings.TrimSpace(string(must(exec.CommandContext(t.Context(), "git", "rev-parse", "--short", "HEAD").Output())(t))),
		Machine: bench.Machine() + ", with the API server, etcd and all simulated agents on it",
	}
}

func middle(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// milliseconds of every hundredth, in order of size: ten thousand numbers are no record that anybody reads.
func milliseconds(all []time.Duration) []float64 {
	var out []float64
	sorted := slices.Sorted(slices.Values(all))
	for i := 0; i < len(sorted); i += 100 {
		out = append(out, float64(sorted[i].Nanoseconds())/1e6)
	}
	return out
}

func seconds(all []time.Duration) []float64 {
	var out []float64
	for _, d := range all {
		out = append(out, d.Seconds())
	}
	return out
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func eventually(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// must returns the value or ends the test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
