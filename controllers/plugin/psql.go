package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// container that the database runs in.
const container = "database"

func newPsql(s *session) *cobra.Command {
	var on string
	c := &cobra.Command{
		Use:   "psql DATABASE [-- PSQL-ARGUMENT...]",
		Short: "Open psql as superuser on the leader, or on another instance",
		Example: `  # On the leader
  kubectl plimsoll psql orders

  # One statement on a replica
  kubectl plimsoll psql orders --instance orders-2 -- -c "SELECT pg_last_wal_replay_lsn()"`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := s.connect()
			if err != nil {
				return err
			}
			d, err := k.database(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if d.Spec.Engine != v1.EnginePostgres {
				return fmt.Errorf("database %s runs %s, which psql does not speak", d.Name, d.Spec.Engine)
			}
			target := or(on, d.Status.Leader)
			if target == "" {
				return fmt.Errorf("database %s has no leader now: name an instance with --instance, or see kubectl plimsoll status %s", d.Name, d.Name)
			}
			if err := instance(d, target); err != nil {
				return err
			}
			return s.exec(cmd, k.namespace, target, append([]string{"psql", "--host=" + engine.RunDir, "--username=postgres"}, args[1:]...))
		},
	}
	c.Flags().StringVar(&on, "instance", "", "the instance to connect to (default: the leader)")
	return c
}

// exec runs a command in an instance's container with kubectl exec, which knows about terminals.
func (s *session) exec(cmd *cobra.Command, namespace, pod string, command []string) error {
	how := []string{"--stdin"}
	if s.Streams.Terminal {
		how = append(how, "--tty")
	}
	run := s.kubectl(cmd.Context(), append(how, given(cmd)...), namespace, pod, command)
	run.Stdin, run.Stdout, run.Stderr = s.Streams.In, s.Streams.Out, s.Streams.Err
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	err := run.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return fmt.Errorf("%s on %s ended with code %d", command[0], pod, exit.ExitCode())
	case err != nil:
		return fmt.Errorf("run %s: %w", s.Kubectl, err)
	}
	return nil
}

// kubectl is kubectl exec of a command in an instance's container, not begun yet.
func (s *session) kubectl(ctx context.Context, flags []string, namespace, pod string, command []string) *exec.Cmd {
	args := slices.Concat([]string{"exec", "--namespace=" + namespace, "--container=" + container}, flags, []string{pod, "--"}, command)
	return exec.CommandContext(ctx, s.Kubectl, args...)
}

// given are the connection flags of this call. The plugin's are kubectl's own: what was given here holds there.
func given(cmd *cobra.Command) []string {
	var flags []string
	// What cobra puts together here does not know which of them were set; each flag does.
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed || f.Name == clientcmd.FlagNamespace {
			return
		}
		values := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			values = several.GetSlice()
		}
		for _, value := range values {
			flags = append(flags, "--"+f.Name+"="+value)
		}
	})
	return flags
}
