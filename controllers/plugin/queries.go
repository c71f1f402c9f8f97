package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// queriesOptions are which statements are asked for.
type queriesOptions struct {
	slow, failed bool
	least        time.Duration
	output, on   string
}

func newQueries(s *session) *cobra.Command {
	var o queriesOptions
	c := &cobra.Command{
		Use:   "queries DATABASE",
		Short: "Show slow and failed statements of a database as they end, until interrupted",
		Long: `Show slow and failed statements of a database as they end, until interrupted.

The probes of the nodes tell which statements failed, and which were slower than their own bound: a second, or what spec.statements.slow of the Probe or
spec.observability.statements.slow of the Database says. --min can only leave out more of them. A line is: when the statement ended, the instance,
user@database, the client's address, how long it waited, the SQLSTATE, rows, the text; "-" is what there is not, or is not known.
It runs a command in the instances' pods, as psql does: that needs "create" of pods/exec in the namespace.`,
		Example: `  # As they end
  kubectl plimsoll queries orders -n shop

  # Those that took five seconds, and none that failed, on one instance
  kubectl plimsoll queries orders --slow --min 5s --instance orders-1

  # All that is told of each, for programs
  kubectl plimsoll queries orders --failed -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			d, names, err := s.watched(cmd, args[0], o.on)
			if err != nil {
				return err
			}
			return s.queries(cmd, d, names, o)
		},
	}
	c.Flags().BoolVar(&o.slow, "slow", false, "slow ones alone (default: failed ones, too)")
	c.Flags().BoolVar(&o.failed, "failed", false, "failed ones alone (default: slow ones, too)")
	c.Flags().DurationVar(&o.least, "min", 0, "slow ones that took so long alone, and failed ones; probes tell none that was faster than their own bound, see above")
	c.Flags().StringVar(&o.on, "instance", "", "one instance alone (default: all)")
	c.Flags().StringVarP(&o.output, "output", "o", "", "json for one object a line, with all that the probe tells of a statement")
	return c
}

func (o queriesOptions) check() error {
	switch {
	case o.least < 0:
		return fmt.Errorf("--min %s: use a time that is not negative, as 100ms", o.least)
	case o.output != "" && o.output != "json":
		return fmt.Errorf("--output %q: use json, or leave it out", o.output)
	}
	return nil
}

// wants says whether a statement was asked for.
func (o queriesOptions) wants(st view.Statement) bool {
	if st.Event == view.EventFailed {
		return o.failed || !o.slow
	}
	return (o.slow || !o.failed) && st.Duration >= o.least.Seconds()
}

// queries shows statements as they come; it ends without an error when the person interrupts it.
func (s *session) queries(cmd *cobra.Command, d *v1.Database, names []string, o queriesOptions) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	sights, end := s.look(ctx, cmd, d.Namespace, names, wantTold, lookAgain)
	defer end()
	said := map[string]string{} // what is amiss by instance, as it was last said
	began := false
	for {
		seen, ok := next(ctx, sights)
		if !ok {
			return nil
		}
		if amiss := seen.amiss(); amiss != "" {
			fresh := said[seen.instance] != amiss
			said[seen.instance] = amiss
			if !began && len(said) == len(names) {
				return fmt.Errorf("no instance of database %s can be shown: %s", d.Name, amissWords(names, said))
			}
			if fresh {
				s.tell("%s: %s", seen.instance, amiss)
			}
			continue
		}
		began = true
		delete(said, seen.instance)
		if seen.line.Lost > 0 {
			s.tell("%s: lost %d messages with statements, because they were not read in time", seen.instance, seen.line.Lost)
		}
		for _, raw := range seen.line.Told {
			if err := s.statement(seen.instance, raw, o); err != nil {
				return err
			}
		}
	}
}

// next sight; false when the context ends.
func next(ctx context.Context, sights <-chan sight) (sight, bool) {
	select {
	case <-ctx.Done():
		return sight{}, false
	case seen := <-sights:
		return seen, true
	}
}

// amiss is why nothing comes of the instance now, or empty.
func (s sight) amiss() string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case s.line.Probe != nil && !*s.line.Probe:
		return errNoProbe.Error()
	}
	return ""
}

func amissWords(names []string, said map[string]string) string {
	var all []string
	for _, name := range names {
		all = append(all, name+": "+said[name])
	}
	return strings.Join(all, "; ")
}

// tell says something beside the output, where nothing can be done if that fails.
func (s *session) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Streams.Err, format+"\n", args...)
}

// statement writes one that was asked for.
func (s *session) statement(instance string, raw json.RawMessage, o queriesOptions) error {
	var st view.Statement
	if err := json.Unmarshal(raw, &st); err != nil {
		s.tell("%s: a statement cannot be read (%v): use the plugin of the operator's release", instance, err)
		return nil
	}
	if !o.wants(st) {
		return nil
	}
	words := string(raw)
	if o.output == "" {
		words = s.words(instance, st)
	}
	if _, err := fmt.Fprintln(s.Streams.Out, words); err != nil {
		return fmt.Errorf("write the statements: %w", err)
	}
	return nil
}

// words are a statement on one line, by the clock of the person.
func (s *session) words(instance string, st view.Statement) string {
	took := wait{seconds: st.Duration, known: st.Duration > 0}
	text := or(printable(st.Text), "-")
	if st.Cut {
		text += " …"
	}
	return strings.Join([]string{
		st.Time.In(s.Now().Location()).Format("15:04:05.000"), instance, or(printable(st.User), "-") + "@" + or(printable(st.Database), "-"),
		or(printable(st.Address), "-"), took.String(), or(printable(st.State), "-"), strconv.FormatInt(st.Rows, 10), text,
	}, "  ")
}
