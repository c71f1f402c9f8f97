package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func newProbe(s *session) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "probe [status]",
		Short: "Show how far the databases of each node are measured, and what is missing",
		Example: `  # How far each node is measured, and what is missing
  kubectl plimsoll probe status

  # The whole object, for programs
  kubectl plimsoll probe status -o json`,
		ValidArgs: []string{"status"},
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			render, err := renderer(output, Probe)
			if err != nil {
				return err
			}
			k, err := s.connect()
			if err != nil {
				return err
			}
			p, err := k.probe(cmd.Context())
			if err != nil {
				return err
			}
			return render(s.Streams.Out, p, s.Now())
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml for the whole object, instead of the table")
	return c
}

// probe reads the cluster's Probe.
func (c *cluster) probe(ctx context.Context) (*v1.Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p := &v1.Probe{}
	err := explain(c.Get(ctx, client.ObjectKey{Name: v1.ProbeName}, p))
	switch {
	case errors.Is(err, errNoKind):
		return nil, errors.New("the cluster does not know probes.plimsoll.dev: install this release of Plimsoll there, or choose another --context")
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("nothing is measured, because there is no Probe: make one named %s", v1.ProbeName)
	case err != nil:
		return nil, fmt.Errorf("read the Probe: %w", err)
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "Probe"}
	p.ManagedFields = nil
	return p, nil
}

// Probe writes the status of a Probe for people.
func Probe(out io.Writer, probe *v1.Probe, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	p := printer{w: w}
	st := probe.Status
	p.line("Mode\t%s", probe.Spec.Mode)
	p.line("Probes\t%s ready", or(st.Ready, "none"))
	if st.ObservedGeneration != probe.Generation {
		p.line("Spec\tgeneration %d is not observed yet (status is of %d)", probe.Generation, st.ObservedGeneration)
	}
	p.nodes(st)
	p.conditions(st.Conditions, now)
	return errors.Join(p.err, w.Flush())
}

func (p *printer) nodes(st v1.ProbeStatus) {
	if len(st.Nodes) == 0 {
		return
	}
	p.line("")
	p.line("NODE\tSTATE\tMEASURED\tPARTLY\tUNSEEN\tWAITING\tHOOKS\tKERNEL\tVERSION\tNOTE")
	for _, n := range st.Nodes {
		i := n.Instances
		p.line("%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s", n.Name, n.State, i.Measured, i.Partly, i.Unseen, i.Waiting,
			or(strings.Join(n.Hooks, ","), "-"), or(n.Kernel, "-"), or(n.Version, "-"), n.Message)
	}
	if st.UnlistedNodes > 0 {
		p.line("%d more nodes are not listed: those above come first", st.UnlistedNodes)
	}
}
