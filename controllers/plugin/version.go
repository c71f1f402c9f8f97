package plugin

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

func newVersion(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin, the operator and the cluster",
		Example: `  # Of the plugin, the operator and the cluster
  kubectl plimsoll version`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := fmt.Fprintf(s.Streams.Out, "plugin    %s (%s)\n", s.Version, runtime.Version()); err != nil {
				return err
			}
			k, err := s.connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			if _, err := fmt.Fprintf(s.Streams.Out, "operator  %s\n", k.operators(ctx)); err != nil {
				return err
			}
			cluster, err := discovery.ToServerVersionInterfaceWithContext(k.pods.Discovery()).ServerVersionWithContext(ctx)
			if err != nil {
				return fmt.Errorf("ask the cluster for its version: %w", err)
			}
			_, err = fmt.Fprintf(s.Streams.Out, "cluster   %s\n", cluster.GitVersion)
			return err
		},
	}
}

// operators are the images of the operators that run. Not everyone may look: that is an answer, too.
func (c *cluster) operators(ctx context.Context) string {
	found, err := c.pods.AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=plimsoll,app.kubernetes.io/component=manager", Limit: 8})
	if err != nil {
		return "unknown: " + err.Error()
	}
	var versions []string
	for _, d := range found.Items {
		versions = append(versions, fmt.Sprintf("%s (namespace %s)", image(d), d.Namespace))
	}
	return or(strings.Join(versions, ", "), "none found")
}

// image of the manager's container.
func image(d appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == "manager" {
			return c.Image
		}
	}
	return "unknown image"
}
