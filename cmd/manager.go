package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"go.uber.org/zap/zapcore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll-operator/api/v1beta1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/admission"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/admission/serving"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/database"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/probe"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/scrape"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

const (
	// The manager asks the API server at most this often.
	queriesPerSecond, queryBurst = 50, 100
	// drain is how long passes that are under way may take to end; the pod's grace is longer.
	drain = 20 * time.Second
	// syncPatience is how long a readiness check waits for the caches.
	syncPatience = time.Second
	startTimeout = 15 * time.Second
	// The kind Database is waited for this long, and looked for this often.
	patience, lookEvery = 2 * time.Minute, time.Second
	// probeLooks bounds the looks for the kind Probe, which a release before this one did not have.
	probeLooks = 3
)

// run builds the parts and starts them; it returns when ctx has ended and they have.
func run(ctx context.Context, o options) error {
	if o.pprofAddress == "" {
		goruntime.MemProfileRate = 0 // nobody will read what the profiler would remember of each allocation
	}
	logger := newLogger(o.logLevel)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger.WithName("client-go"))
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = queriesPerSecond, queryBurst, "plimsoll-manager/"+version
	config.Wrap(ssa.UserAgent)

	engines := policy.Engines{v1.EnginePostgres: postgres.New(postgres.Options{ImagePattern: o.postgresImage, RunAsUser: o.postgresUser})}
	hooks, err := newWebhooks(config, o)
	if err != nil {
		return err
	}
	platform, err := look(ctx, config, logger)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	mgr, err := newManager(config, o, platform, logger, hooks, func(why error) { stop(&restartError{why}) })
	if err != nil {
		return err
	}
	if err := hooks.setup(mgr, engines); err != nil {
		return err
	}
	programs, err := readPrograms(o, logger)
	if err != nil {
		return err
	}
	writer, err := ssa.New(mgr.GetClient(), mgr.GetAPIReader(), metrics.Registry, database.ByMetadata()...)
	if err != nil {
		return err
	}
	dialer, err := addDatabases(mgr, o, writer, database.Surroundings{
		AgentImage: o.agentImage, OperatorNamespace: o.operatorNamespace, OpenShift: platform.openShift, Engines: engines, Programs: programs,
	})
	if err != nil {
		return err
	}
	defer dialer.Close()
	if platform.probes {
		if err := addProbes(mgr, o, writer); err != nil {
			return err
		}
	}
	logger.Info("starting", "version", version, "agentImage", o.agentImage, "openShift", platform.openShift, "webhook", o.webhook)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	logger.Info("stopped")
	if why := new(restartError); errors.As(context.Cause(ctx), &why) {
		return why
	}
	return nil
}

// restartError is why this process must end, so that another one begins without what it knows.
type restartError struct{ why error }

// Error of what happened.
func (e *restartError) Error() string { return e.why.Error() }

// Unwrap gives it.
func (e *restartError) Unwrap() error { return e.why }

// architectures that the operator's image is built for.
func architectures() []string { return []string{"amd64", "arm64"} }

// readPrograms finds the agents that this image holds.
func readPrograms(o options, logger logr.Logger) (database.Programs, error) {
	if o.agentProgram == "" {
		return nil, nil
	}
	others := slices.DeleteFunc(architectures(), func(name string) bool { return name == goruntime.GOARCH })
	programs, err := database.ReadPrograms(o.agentProgram, goruntime.GOARCH, others, version)
	if err != nil {
		return nil, err
	}
	for name, p := range programs {
		logger.Info("agent for running instances", "architecture", name, "version", p.Version, "digest", p.Digest, "bytes", p.Size)
	}
	if len(programs) == 0 {
		logger.Info("no agent for running instances: they keep theirs", "program", o.agentProgram)
	}
	return programs, nil
}

func newLogger(level string) logr.Logger {
	from := zapcore.InfoLevel
	if level == "debug" {
		from = zapcore.DebugLevel
	}
	return zap.New(zap.UseDevMode(false), zap.JSONEncoder(func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.RFC3339NanoTimeEncoder }), zap.Level(from))
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme, v1beta1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build the scheme: %w", err)
		}
	}
	return scheme, nil
}

func newManager(config *rest.Config, o options, is platform, logger logr.Logger, hooks *webhooks, restored func(error)) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	cached, err := database.CacheOptions(o.namespaces)
	if err != nil {
		return nil, err
	}
	if is.probes { // a cache of a kind that is not served cannot be made
		maps.Copy(cached.ByObject, probe.Cached())
	}
	lock, err := newLock(config, o, restored)
	if err != nil {
		return nil, err
	}
	grace := drain
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Logger: logger, Cache: cached, Client: database.ClientOptions(),
		Metrics:                metricsOptions(o.metricsAddress, o.metricsSecure),
		HealthProbeBindAddress: o.probeAddress, PprofBindAddress: o.pprofAddress,
		WebhookServer:  hooks.server,
		LeaderElection: o.elect, LeaderElectionID: o.electionID, LeaderElectionNamespace: o.operatorNamespace,
		LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &o.leaseDuration, RenewDeadline: &o.renewDeadline, RetryPeriod: &o.retryEvery,
		GracefulShutdownTimeout: &grace,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}

func metricsOptions(address string, secure bool) metricsserver.Options {
	out := metricsserver.Options{BindAddress: address, SecureServing: secure}
	if secure {
		out.FilterProvider = scrape.Filter
		// Scrapers do not need HTTP/2, whose resets have been a way to keep servers busy.
		out.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}
	return out
}

// newLock is the Lease by which replicas of the manager agree. It sends no events, for which the manager would need the right to
// write those of the old kind. Restored is told when etcd turns out to be an older one than before.
func newLock(config *rest.Config, o options, restored func(error)) (resourcelock.Interface, error) {
	if !o.elect {
		return nil, nil //nolint:nilnil // no lock is wanted
	}
	own := rest.AddUserAgent(rest.CopyConfig(config), "leader-election") // which changes what it is given
	own.Timeout = max(o.renewDeadline/2, time.Second)
	clients, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for the leader election: %w", err)
	}
	identity, err := identityOf(os.Getenv)
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.operatorNamespace, Name: o.electionID},
		Client:     &leases{LeasesGetter: clients.CoordinationV1(), back: restored, most: o.renewDeadline + o.retryEvery},
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}, nil
}

// identityOf this replica in the election. A pod's name is one, and stays when the container of a process that was killed starts again:
// it goes on as who it was, and nobody waits until its lease has run out. Outside of a pod two processes may share a host.
func identityOf(getenv func(string) string) (string, error) {
	if pod := getenv("POD_NAME"); pod != "" {
		return pod, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this host for the leader election: %w", err)
	}
	return host + "_" + uuid.NewString(), nil
}

// platform is what the API server offers beside what every one does.
type platform struct {
	openShift bool // with its security constraints
	probes    bool // the kind Probe is installed
}

// look asks for the platform. It waits for the kind Database, which is often installed in the same breath as the manager, so that nobody
// has to wait for a pod that backs off.
func look(ctx context.Context, config *rest.Config, logger logr.Logger) (platform, error) {
	own := rest.CopyConfig(config)
	own.Timeout = startTimeout
	found, err := discovery.NewDiscoveryClientForConfig(own)
	if err != nil {
		return platform{}, fmt.Errorf("make a client for the API's groups: %w", err)
	}
	var is platform
	looks := 0
	err = wait.PollUntilContextTimeout(ctx, lookEvery, patience, true, func(context.Context) (bool, error) {
		served, err := found.ServerResourcesForGroupVersion(v1.GroupVersion.String())
		if err != nil {
			logger.Info("waiting for the kind Database", "error", err.Error())
			return false, nil
		}
		is.probes = slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == "probes" })
		looks++
		return is.probes || looks >= probeLooks, nil
	})
	if err != nil {
		return platform{}, fmt.Errorf("the API server does not serve %s; install the CustomResourceDefinition databases.plimsoll.dev: %w", v1.GroupVersion, err)
	}
	if !is.probes {
		logger.Info("no Probe can be had: install the CustomResourceDefinition probes.plimsoll.dev and start the manager again")
	}
	groups, err := found.ServerGroups()
	if err != nil {
		return platform{}, fmt.Errorf("ask for the API's groups: %w", err)
	}
	is.openShift = slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "security.openshift.io" })
	return is, nil
}

// addDatabases adds the reconciler of Databases and what it needs.
func addDatabases(mgr ctrl.Manager, o options, writer *ssa.Writer, around database.Surroundings) (*database.Dialer, error) {
	lives := certificate.DefaultPolicy()
	lives.QuickOverlap = o.rotationTrust
	vault := database.NewVault(mgr.GetAPIReader())
	dialer := database.NewDialer(vault, lives, time.Now)
	reports := database.NewReports(dialer, mgr.GetLogger().WithName("reports"))
	counted, err := database.NewMetrics(metrics.Registry, reports)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	openIssued := func(failed toolscache.WatchErrorHandlerWithContext) (cache.Cache, error) {
		cached, err := database.CacheOptions(o.namespaces)
		if err != nil {
			return nil, err
		}
		cached.Scheme, cached.Mapper, cached.HTTPClient = mgr.GetScheme(), mgr.GetRESTMapper(), mgr.GetHTTPClient()
		cached.DefaultWatchErrorHandler = failed
		return cache.New(mgr.GetConfig(), cached)
	}
	issued := database.NewIssued(mgr.GetRESTMapper(), openIssued, vault, reports, mgr.GetLogger().WithName("issued"))
	health := database.NewHealth(mgr.GetClient(), time.Now)
	r := database.New(database.Options{
		Read: mgr.GetClient(), Live: mgr.GetAPIReader(), Writer: writer, Agents: dialer, Vault: vault, Reports: reports, Issued: issued, Metrics: counted,
		Health: health, Events: mgr.GetEventRecorder("plimsoll-manager"), Now: time.Now, Policy: lives, Surroundings: around,
	})
	return dialer, errors.Join(
		r.SetupWithManager(mgr, o.concurrent),
		mgr.AddHealthzCheck("alive", healthz.Ping),
		mgr.AddReadyzCheck("caches", cachesSynced(mgr.GetCache())),
		mgr.AddReadyzCheck("reconciles", health.Check),
	)
}

// addProbes adds the reconciler of Probes. What it makes is few and read from the API server itself: no cache holds it.
func addProbes(mgr ctrl.Manager, o options, writer *ssa.Writer) error {
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("make a client for the probes: %w", err)
	}
	return probe.New(probe.Options{
		Read: mgr.GetClient(), Live: live, Writer: writer.Live(live), Asker: probe.NewHTTP(), Now: time.Now,
		Image: o.agentImage, OperatorNamespace: o.operatorNamespace,
	}).SetupWithManager(mgr)
}

// cachesSynced is red until every cache that is used has its first list.
func cachesSynced(c cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncPatience)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
}

// webhooks are the server of the webhooks and whoever keeps its certificate.
type webhooks struct {
	on      bool
	server  webhook.Server
	callers *admission.Callers
	keeper  *serving.Keeper
}

func newWebhooks(config *rest.Config, o options) (*webhooks, error) {
	w := &webhooks{on: o.webhook}
	if !o.webhook {
		return w, nil
	}
	var err error
	if o.webhookClientCA != "" {
		if w.callers, err = admission.NewCallers(o.webhookClientCA, o.webhookClientNames, time.Now); err != nil {
			return nil, err
		}
	}
	server := admission.ServerOptions{Port: o.webhookPort, CertDir: o.webhookCertDir, Callers: w.callers}
	if o.selfManaged() {
		if w.keeper, err = newKeeper(config, o); err != nil {
			return nil, err
		}
		server.GetCertificate = w.keeper.GetCertificate
	}
	w.server = admission.NewServer(server)
	return w, nil
}

// selfManaged says whether the operator keeps the webhooks' certificate itself.
func (o options) selfManaged() bool {
	if o.webhookSelfManaging != "auto" {
		return o.webhookSelfManaging == "true"
	}
	_, err := os.Stat(filepath.Join(o.webhookCertDir, "tls.crt"))
	return err != nil
}

func newKeeper(config *rest.Config, o options) (*serving.Keeper, error) {
	plain, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make a client for the webhooks' certificate: %w", err)
	}
	name := o.webhookService + "." + o.operatorNamespace + ".svc"
	return serving.New(serving.Options{
		Client: plain, Namespace: o.operatorNamespace, Secret: o.webhookSecret, Names: []string{name, name + ".cluster.local"},
		Validating: o.webhookValidating, Mutating: o.webhookMutating, CRDs: o.webhookDefinitions,
		Clock: clock.RealClock{}, Registry: metrics.Registry,
	})
}

func (w *webhooks) setup(mgr ctrl.Manager, engines policy.Engines) error {
	if !w.on {
		return nil
	}
	if err := admission.Setup(mgr, admission.Options{Engines: engines, Callers: w.callers}); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhook", w.server.StartedChecker()); err != nil {
		return fmt.Errorf("check the webhooks: %w", err)
	}
	if w.keeper == nil {
		return nil
	}
	return errors.Join(mgr.Add(w.keeper), mgr.AddReadyzCheck("certificate", w.keeper.Check))
}
