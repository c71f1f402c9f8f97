// Command cert-manager runs cert-manager's own controllers, without its webhook: its commands are modules that no module proxy serves.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/pkg/api"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	requestsca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	requestsselfsigned "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	"github.com/cert-manager/cert-manager/pkg/util"

	// The two kinds of issuer that need nobody outside the cluster.
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// workers of each controller, as cert-manager's command has by default.
const workers = 5

func main() {
	flags := flag.NewFlagSet("cert-manager", flag.ExitOnError) // a package below has taken some names of the common one
	kubeconfig := flags.String("kubeconfig", "", "file that says how to reach the API server; empty: as a pod does")
	namespace := flags.String("cluster-resource-namespace", "cert-manager", "namespace of the Secrets that ClusterIssuers name")
	inject := flags.Bool("cainjector", true, "write authorities into webhook configurations and CustomResourceDefinitions, too")
	klog.InitFlags(flags)
	_ = flags.Parse(os.Args[1:]) // it ends the program itself
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *kubeconfig, *namespace, *inject)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

// run runs all until ctx ends or one of them does.
func run(ctx context.Context, kubeconfig, namespace string, inject bool) error {
	loops, err := controllers(ctx, kubeconfig, namespace)
	if err != nil {
		return err
	}
	if inject {
		injector, err := injector(ctx, kubeconfig)
		if err != nil {
			return err
		}
		loops = append(loops, injector)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(loops))
	for _, loop := range loops {
		go func() { ended <- loop(ctx) }()
	}
	var first error
	for range loops {
		if err := <-ended; err != nil && first == nil {
			first = err
		}
		cancel()
	}
	return first
}

// controllers are cert-manager's own, by the names by which they register themselves, with the defaults of its command.
func controllers(ctx context.Context, kubeconfig, namespace string) ([]func(context.Context) error, error) {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig: kubeconfig, KubernetesAPIQPS: 20, KubernetesAPIBurst: 50,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: namespace},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour, CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	wanted := []string{
		issuers.ControllerName, clusterissuers.ControllerName, approver.ControllerName, requestsca.CRControllerName,
		requestsselfsigned.CRControllerName, trigger.ControllerName, issuing.ControllerName, keymanager.ControllerName,
		requestmanager.ControllerName, readiness.ControllerName, revisionmanager.ControllerName,
	}
	var loops []func(context.Context) error
	for name, make := range controller.Known() {
		if !slices.Contains(wanted, name) {
			continue
		}
		made, err := make(factory)
		if err != nil {
			return nil, fmt.Errorf("make the controller %s: %w", name, err)
		}
		loops = append(loops, func(ctx context.Context) error { return made.Run(workers, ctx) })
	}
	if len(loops) != len(wanted) {
		return nil, fmt.Errorf("%d of %d controllers are known", len(loops), len(wanted))
	}
	shared, err := factory.Build()
	if err != nil {
		return nil, fmt.Errorf("start the caches: %w", err)
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return loops, nil
}

// injector is cert-manager's other program.
func injector(ctx context.Context, kubeconfig string) (func(context.Context) error, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), extensionsv1.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("name the kinds of the cainjector: %w", err)
	}
	config = util.RestConfigWithUserAgent(config, "cainjector") // it is the field manager, too
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cainjector: %w", err)
	}
	err = cainjector.RegisterAllInjectors(ctx, mgr, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName: true, cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.CustomResourceDefinitionName: true,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cainjector: %w", err)
	}
	return mgr.Start, nil
}
