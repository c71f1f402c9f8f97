package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/export"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/journal"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/node"
)

// probeOptions are the flags of a node's probe.
type probeOptions struct {
	node, cgroups, proc string
	statements          int
	slow                time.Duration
	failed, lines       bool
	otlpEndpoint        string
	clients             string
	clientSeries        int
	operator            string
	operatorEvery       time.Duration // a test's; no flag
	logLevel            string

	metricsAddress, healthAddress, statusAddress string
	metricsSecure                                bool
}

func probeCommand() *cobra.Command {
	var o probeOptions
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Counts the statements of a node's databases in the kernel and serves them as metrics",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return runProbe(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "the node that it runs on; by default that of NODE_NAME")
	f.StringVar(&o.cgroups, "cgroups", "/sys/fs/cgroup", "where the node's cgroups are mounted")
	f.StringVar(&o.proc, "proc", "/proc", "where the node's processes are mounted")
	f.IntVar(&o.statements, "statements", 100, "how many statements of an instance have series of their own; the others are counted as other")
	f.DurationVar(&o.slow, "slow-statements", time.Second, "statements for whose answer a client waits as long as this or longer are told one by one; 0 for none")
	f.BoolVar(&o.failed, "failed-statements", true, "statements that are answered with an error are told one by one, a thousand a second of an instance at most")
	f.BoolVar(&o.lines, "statement-lines", true, "write these statements to standard output, a line of JSON each")
	f.StringVar(&o.otlpEndpoint, "otlp-endpoint", "",
		"where these statements are sent as logs of OpenTelemetry over HTTP, as http://collector:4318; OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE hold")
	f.StringVar(&o.clients, "clients", clientsByWorkload, "how clients of connections are told apart: by workload, for which it watches the pods of the whole cluster; by address-class; or off")
	f.IntVar(&o.clientSeries, "client-series", 50, "how many clients of an instance have series of their own; the others are counted as other")
	f.StringVar(&o.operator, "operator", "",
		"the namespace and the name of the manager's Deployment, as plimsoll-system/plimsoll-manager: while that is gone, nothing is measured; empty to measure always")
	f.StringVar(&o.logLevel, "log-level", "info", "info, or debug for everything")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "where metrics are served")
	f.BoolVar(&o.metricsSecure, "metrics-secure", true, "serve metrics over HTTPS, to those whom the API server lets get /metrics")
	f.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served")
	f.StringVar(&o.statusAddress, "status-bind-address", "", "where the manager is told how far the node is measured, as :8082; nowhere by default")
	return cmd
}

// mostStatements bounds the series of an instance: the kernel's side tells as many apart on a whole node.
const mostStatements = 8192

// check says what cannot work, before anything has started.
func (o probeOptions) check() error {
	switch {
	case o.node == "":
		return errors.New("--node is empty: name the node there or in the variable NODE_NAME")
	case o.statements < 1 || o.statements > mostStatements:
		return fmt.Errorf("--statements is %d: give 1 to %d", o.statements, mostStatements)
	case o.slow < 0:
		return fmt.Errorf("--slow-statements is %v: give 0 or more", o.slow)
	case !slices.Contains([]string{clientsByWorkload, clientsByAddress, clientsOff}, o.clients):
		return fmt.Errorf("--clients is %q: give %s, %s or %s", o.clients, clientsByWorkload, clientsByAddress, clientsOff)
	case o.clientSeries < 1 || o.clientSeries > mostClientSeries:
		return fmt.Errorf("--client-series is %d: give 1 to %d", o.clientSeries, mostClientSeries)
	case o.logLevel != "info" && o.logLevel != "debug":
		return fmt.Errorf("--log-level is %q: give info or debug", o.logLevel)
	}
	if _, err := parseOperator(o.operator); err != nil {
		return err
	}
	if _, err := o.receiver(); err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	return nil
}

// receiver of logs; nil if there is none.
func (o probeOptions) receiver() (*journal.OTLP, error) {
	if o.otlpEndpoint == "" {
		return nil, nil
	}
	to := journal.OTLPOptions{Endpoint: o.otlpEndpoint, Headers: os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), Version: version}
	if file := os.Getenv("OTEL_EXPORTER_OTLP_CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s holds no certificate in PEM", file)
		}
		to.TLS = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	}
	return journal.NewOTLP(to)
}

// newJournal tells statements that were slow or failed; nil if nobody is to be told.
func newJournal(o probeOptions, logger logr.Logger) (*journal.Journal, func(), error) {
	var sinks []journal.Sink
	if o.lines {
		sinks = append(sinks, journal.NewLines(os.Stdout))
	}
	receiver, err := o.receiver()
	if err != nil {
		return nil, nil, err
	}
	if receiver != nil {
		sinks = append(sinks, receiver)
	}
	if len(sinks) == 0 {
		return nil, func() {}, nil
	}
	counted, err := journal.NewMetrics(metrics.Registry)
	if err != nil {
		return nil, nil, fmt.Errorf("register metrics: %w", err)
	}
	return journal.New(counted, logger.WithName("journal"), sinks...), func() { counted.Forget(metrics.Registry) }, nil
}

// listTimeout bounds a look into the cache, which waits when it has not been filled yet.
const listTimeout = 5 * time.Second

// runProbe measures the node until ctx ends.
func runProbe(ctx context.Context, o probeOptions) error {
	logger := newLogger(o.logLevel)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger.WithName("client-go"))
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	config.UserAgent = "plimsoll-probe/" + version
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("build the scheme: %w", err)
	}
	grace := drain
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Logger: logger, Cache: podsOf(o.node), Metrics: metricsOptions(o.metricsAddress, o.metricsSecure),
		HealthProbeBindAddress: o.healthAddress, GracefulShutdownTimeout: &grace,
	})
	if err != nil {
		return fmt.Errorf("make the probe: %w", err)
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch the pods of node %s: %w", o.node, err)
	}
	told, forget, err := newJournal(o, logger)
	if err != nil {
		return err
	}
	defer forget()
	clients, err := clientsOf(mgr, o.clients)
	if err != nil {
		return err
	}
	of := node.Options{
		Instances: func() ([]attribute.Instance, error) { return instancesOn(ctx, mgr.GetClient()) },
		Cgroups:   o.cgroups, Proc: o.proc, Statements: o.statements, Slow: o.slow, Failed: o.failed, Name: o.node,
		Clients: clients, ClientSeries: o.clientSeries, Version: version, Log: logger.WithName("node"),
	}
	if told != nil {
		of.Tell = told.Add
		defer behind(ctx, told.Run, logger)()
	}
	n, err := node.Start(of)
	if err != nil {
		return err
	}
	for _, collector := range []prometheus.Collector{export.New(n), export.NewConnections(n)} {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
		defer metrics.Registry.Unregister(collector)
	}
	by, err := parseOperator(o.operator)
	if err != nil {
		return err
	}
	asked := &operator{ObjectKey: by, read: mgr.GetAPIReader(), every: cmp.Or(o.operatorEvery, operatorEvery), log: logger}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err = errors.Join(
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			again, err := asked.measure(ctx, n.Run)
			if again {
				stop() // the kubelet starts it again
			}
			return err
		})),
		mgr.AddHealthzCheck("alive", n.Alive),
		mgr.AddReadyzCheck("looks", n.Ready),
	)
	if err == nil && o.statusAddress != "" {
		err = addStatus(ctx, mgr, o, n, asked)
	}
	if err != nil {
		return fmt.Errorf("make the probe: %w", err)
	}
	logger.Info("starting", "version", version, "node", o.node)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the probe: %w", err)
	}
	logger.Info("stopped")
	return nil
}

func addStatus(ctx context.Context, mgr manager.Manager, o probeOptions, n *node.Node, by *operator) error {
	server, err := statusServer(ctx, o.statusAddress, o.node, func() node.Status {
		if missing := by.missing(); missing != "" {
			return node.Status{Missing: missing}
		}
		return n.Status()
	})
	if err != nil {
		return err
	}
	return mgr.Add(server)
}

// behind runs what outlives the rest: it is stopped, and waited for, by the function that it gives back.
func behind(ctx context.Context, run func(context.Context) error, logger logr.Logger) func() {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			logger.Error(err, "cannot tell all statements")
		}
	}()
	return func() {
		stop()
		<-ended
	}
}

// podsOf are the instances' pods on a node, and nothing else of the cluster.
func podsOf(node string) cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
		Field:     fields.OneTermEqualSelector("spec.nodeName", node),
		Label:     labels.SelectorFromSet(labels.Set{v1.LabelKind: v1.KindInstance}),
		Transform: cache.TransformStripManagedFields(),
	}}}
}

func instancesOn(ctx context.Context, c client.Reader) ([]attribute.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("list the pods of this node: %w", err)
	}
	var all []attribute.Instance
	for i := range pods.Items {
		if instance, ok := attribute.OfPod(&pods.Items[i]); ok {
			all = append(all, instance)
		}
	}
	return all, nil
}
