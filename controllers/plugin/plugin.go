// Package plugin holds the commands of kubectl plimsoll.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// callTimeout bounds each call of the API server.
const callTimeout = 10 * time.Second

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal is true where Out is one: live views then redraw instead of adding lines.
	Terminal bool
	// Width is how many columns Out has now, 0 where that cannot be known; nil is never known.
	Width func() int
}

// Config is what the front door hands in.
type Config struct {
	Streams Streams
	// Version of the plugin.
	Version string
	// Kubectl is the kubectl to run for interactive sessions.
	Kubectl string
	// Now is the clock.
	Now func() time.Time
}

// New is the root command.
func New(c Config) *cobra.Command {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	overrides := &clientcmd.ConfigOverrides{}
	root := &cobra.Command{
		Use:           "kubectl-plimsoll",
		Short:         "Look after the databases that Plimsoll runs",
		SilenceUsage:  true,
		SilenceErrors: true,
		// cobra prints the name of the binary; people type it as a kubectl plugin.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl plimsoll"},
	}
	root.SetIn(c.Streams.In)
	root.SetOut(c.Streams.Out)
	root.SetErr(c.Streams.Err)
	flags := root.PersistentFlags()
	flags.StringVar(&loading.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig file")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	// kubectl's other connection flags work, too; the help shows the three that people use.
	flags.VisitAll(func(f *pflag.Flag) {
		f.Hidden = !slices.Contains([]string{clientcmd.RecommendedConfigPathFlag, clientcmd.FlagContext, clientcmd.FlagNamespace}, f.Name)
	})
	s := &session{Config: c, kubeconfig: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, overrides)}
	root.AddCommand(newStatus(s), newSwitchover(s), newRestart(s), newRotate(s), newRecover(s), newFence(s), newUnfence(s), newPsql(s), newLogs(s), newTop(s), newQueries(s), newProbe(s), newVersion(s))
	return root
}

// session is one run of a command: its configuration and the way to the cluster.
type session struct {
	Config
	kubeconfig clientcmd.ClientConfig
}

// cluster is a connected session.
type cluster struct {
	client.Client
	pods      kubernetes.Interface
	namespace string
}

// connect reads the kubeconfig and makes the clients; it calls nobody yet.
func (s *session) connect() (*cluster, error) {
	config, err := s.kubeconfig.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("there is no kubeconfig, or it names no cluster: set KUBECONFIG, or give --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	namespace, _, err := s.kubeconfig.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-plimsoll/" + s.Version
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register %s: %w", v1.GroupVersion, err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper(scheme)})
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	pods, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return &cluster{Client: c, pods: pods, namespace: namespace}, nil
}

// mapper knows the two kinds that the plugin reads, so that no command begins with a discovery of the whole API.
func mapper(*runtime.Scheme) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(v1.GroupVersion.WithKind("Database"), meta.RESTScopeNamespace)
	m.Add(v1.GroupVersion.WithKind("Probe"), meta.RESTScopeRoot)
	return m
}

// database reads one Database and tells the likely mistakes apart.
func (c *cluster) database(ctx context.Context, name string) (*v1.Database, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d := &v1.Database{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, d)
	if err != nil {
		return nil, fmt.Errorf("read Database %s in namespace %s: %w", name, c.namespace, explain(err))
	}
	return d, nil
}

// instance checks that a Database has an instance of that name.
func instance(d *v1.Database, name string) error {
	names := make([]string, 0, len(d.Status.Instances))
	for _, i := range d.Status.Instances {
		if i.Name == name {
			return nil
		}
		names = append(names, i.Name)
	}
	return fmt.Errorf("database %s has no instance %q: it has %v", d.Name, name, names)
}

// errNoKind is what a cluster without Plimsoll answers.
var errNoKind = errors.New("the cluster does not know databases.plimsoll.dev: install Plimsoll there, or choose another --context")
