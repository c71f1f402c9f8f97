package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
)

// maxLine is the longest line of a log that is shown whole; the agent cuts its own far below it.
const maxLine = 1 << 20

func newLogs(s *session) *cobra.Command {
	var follow, previous bool
	var tail int64
	c := &cobra.Command{
		Use:   "logs DATABASE [INSTANCE]",
		Short: "Show the logs of every instance, or of one, each line with its instance",
		Example: `  # Of every instance, and go on with new lines
  kubectl plimsoll logs orders --follow

  # All of one, from before its container started again
  kubectl plimsoll logs orders orders-2 --previous --tail -1`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := s.connect()
			if err != nil {
				return err
			}
			d, err := k.database(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			names := args[1:]
			if len(names) == 0 {
				for _, i := range d.Status.Instances {
					names = append(names, i.Name)
				}
			} else if err := instance(d, names[0]); err != nil {
				return err
			}
			if len(names) == 0 {
				return fmt.Errorf("database %s has no instances yet: see kubectl plimsoll status %s", d.Name, d.Name)
			}
			options := corev1.PodLogOptions{Container: container, Follow: follow, Previous: previous}
			if tail >= 0 {
				options.TailLines = &tail
			}
			return s.logs(cmd.Context(), k, names, options)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new lines until interrupted")
	c.Flags().BoolVarP(&previous, "previous", "p", false, "of the container before the last restart")
	c.Flags().Int64Var(&tail, "tail", 100, "lines of each instance to begin with; -1 for all")
	return c
}

// logs copies the logs of the named instances, line by line, until each has ended.
func (s *session) logs(ctx context.Context, k *cluster, names []string, options corev1.PodLogOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var whole sync.Mutex // one line at a time
	failed := make([]error, len(names))
	var all sync.WaitGroup
	for n, name := range names {
		all.Go(func() {
			failed[n] = func() error {
				stream, err := k.pods.CoreV1().Pods(k.namespace).GetLogs(name, &options).Stream(ctx)
				if err != nil {
					return fmt.Errorf("read the log of %s: %w", name, err)
				}
				defer stream.Close()
				return s.lines(stream, name, &whole)
			}()
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(failed...)
}

func (s *session) lines(from io.Reader, name string, whole *sync.Mutex) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		whole.Lock()
		_, err := fmt.Fprintf(s.Streams.Out, "%s %s\n", name, lines.Bytes())
		whole.Unlock()
		if err != nil {
			return fmt.Errorf("write the log of %s: %w", name, err)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("read the log of %s: %w", name, err)
	}
	return nil
}
