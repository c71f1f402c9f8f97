// Package e2e shows on a real three-node cluster, with the operator installed, what a user sees. It runs inside the control
// plane's network: see the Makefile's target test-e2e.
package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// oldVersion and newVersion are two builds of PostgreSQL that the local cluster's registry holds.
const (
	oldVersion = "15.18"
	newVersion = "15.20"
)

// suite is what every test shares: the way to the cluster.
type suite struct {
	client.Client
	cluster *cluster.Cluster
	binary  string // kubectl-plimsoll
}

var shared *suite //nolint:gochecknoglobals // set once by TestMain, read by tests

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // warnings of the API server are a test's own business
	before := goleak.IgnoreCurrent()
	s, hangUp, err := connect()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	shared = s
	code := m.Run()
	hangUp()
	err = goleak.Find(
		before,
		// The daemons of a node that had its power back outlive this test.
		goleak.IgnoreAnyFunction("github.com/plimsoll-dev/plimsoll-operator/tests/cluster.(*Cluster).start.func1"),
		// A cache that ends while an object arrives leaves its filter behind.
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"),
	)
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// connect returns the suite and what ends its connections.
func connect() (*suite, func(), error) {
	c, err := cluster.Open()
	if err != nil {
		return nil, nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.InsideKubeconfig())
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", c.InsideKubeconfig(), err)
	}
	config.QPS, config.Burst = 50, 100
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	calls, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	k, err := client.New(config, client.Options{Scheme: scheme, HTTPClient: calls})
	if err != nil {
		return nil, nil, err
	}
	hangUp := func() { utilnet.CloseIdleConnectionsFor(calls.Transport) }
	return &suite{Client: k, cluster: c, binary: os.Getenv("PLIMSOLL_KUBECTL_PLUGIN")}, hangUp, nil
}

// namespace makes one for a test and deletes it afterwards, with everything in it.
func (s *suite) namespace(t *testing.T) string {
	t.Helper()
	inTime(t)
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	return s.named(t, "e2e-"+name[len("test"):])
}

// named makes a namespace of that name for a test.
func (s *suite) named(t *testing.T, name string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := s.Create(t.Context(), ns); err != nil {
		t.Fatalf("make namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if t.Failed() {
			s.tell(ctx, t, name)
		}
		if err := s.Delete(ctx, ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete namespace %s: %v", name, err)
		}
		eventually(ctx, t, 90*time.Second, "namespace "+name+" gone", func() error {
			err := s.Get(ctx, client.ObjectKeyFromObject(ns), ns)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return cmp.Or(err, fmt.Errorf("still there: %+v", ns.Status.Conditions))
		})
	})
	return name
}

// tell logs what a person would look at after a failure.
func (s *suite) tell(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "databases,pods,pvc,lease,endpointslices", "-o", "wide"},
		{"get", "databases", "-o", "yaml"},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"logs", "--selector=plimsoll.dev/database", "--all-containers", "--tail=400", "--prefix"},
	} {
		out, err := s.cluster.Kubectl(ctx, "", append([]string{"--namespace=" + namespace}, args...)...)
		t.Logf("kubectl %s (%v):\n%s", strings.Join(args, " "), err, without(out, "INSERT INTO ledger", "not yet accepting connections"))
	}
	out, err := s.cluster.Kubectl(ctx, "", "--namespace=plimsoll-system", "logs", "--selector=app.kubernetes.io/component=manager", "--tail=60", "--prefix")
	t.Logf("the operator's log (%v):\n%s", err, out)
}

// without leaves out the lines that hold any of the words: what a server says of every write that it refuses.
func without(text string, words ...string) string {
	lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) })
	})
	return strings.Join(lines, "")
}

// eventually tries a check until it holds; what it said last is the failure.
func eventually(ctx context.Context, t *testing.T, limit time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	limit = patient(limit)
	began := time.Now()
	var last error
	for time.Since(began) < limit && ctx.Err() == nil {
		if last = check(); last == nil {
			return time.Since(began)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s: not within %s: %v", what, limit, last)
	return 0
}
