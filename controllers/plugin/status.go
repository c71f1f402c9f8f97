package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// watchPeriod is how often a live view looks again.
const watchPeriod = time.Second

func newStatus(s *session) *cobra.Command {
	var watch bool
	var output string
	c := &cobra.Command{
		Use:   "status DATABASE",
		Short: "Show who leads, what each instance does, and what to do next",
		Example: `  # Who leads, what each instance does, and what to do next
  kubectl plimsoll status orders -n shop

  # The same again each second, while something changes
  kubectl plimsoll status orders --watch

  # The whole object, for programs
  kubectl plimsoll status orders -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			render, err := renderer(output, Status)
			if err != nil {
				return err
			}
			k, err := s.connect()
			if err != nil {
				return err
			}
			if !watch {
				return s.show(cmd.Context(), k, args[0], render)
			}
			return s.follow(cmd.Context(), k, args[0], render)
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again each second until interrupted")
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml for the whole object, instead of the table")
	return c
}

// render writes an object.
type render[T client.Object] func(io.Writer, T, time.Time) error

// renderer for an output that was asked for; table is the one for people.
func renderer[T client.Object](output string, table render[T]) (render[T], error) {
	switch output {
	case "":
		return table, nil
	case "json":
		return func(w io.Writer, obj T, _ time.Time) error {
			raw, err := json.MarshalIndent(obj, "", "  ")
			if err != nil {
				return fmt.Errorf("encode %s: %w", obj.GetName(), err)
			}
			_, err = fmt.Fprintln(w, string(raw))
			return err
		}, nil
	case "yaml":
		return func(w io.Writer, obj T, _ time.Time) error {
			raw, err := yaml.Marshal(obj)
			if err != nil {
				return fmt.Errorf("encode %s: %w", obj.GetName(), err)
			}
			_, err = w.Write(raw)
			return err
		}, nil
	default:
		return nil, fmt.Errorf("--output %q: use json or yaml, or leave it out", output)
	}
}

func (s *session) show(ctx context.Context, k *cluster, name string, r render[*v1.Database]) error {
	d, err := k.database(ctx, name)
	if err != nil {
		return err
	}
	d.TypeMeta = metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "Database"}
	d.ManagedFields = nil
	return r(s.Streams.Out, d, s.Now())
}

// follow shows the status again and again; it ends without an error when the person interrupts it.
func (s *session) follow(ctx context.Context, k *cluster, name string, r render[*v1.Database]) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		var frame strings.Builder
		shown := *s
		shown.Streams.Out = &frame
		err := shown.show(ctx, k, name, r)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.redraw(frame.String()); err != nil {
			return fmt.Errorf("write the status: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// redraw shows the next picture of a live view: in place of the last one on a terminal, else below it.
func (s *session) redraw(picture string) error {
	prefix := ""
	if s.Streams.Terminal {
		prefix = "\x1b[H\x1b[2J"
	}
	_, err := io.WriteString(s.Streams.Out, prefix+picture+"\n")
	return err
}

// Status writes the status of a Database for people.
func Status(out io.Writer, d *v1.Database, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	p := printer{w: w}
	st := d.Status
	p.line("Database\t%s/%s", d.Namespace, d.Name)
	p.line("Engine\t%s %s", d.Spec.Engine, or(st.Version, d.Spec.Version))
	p.line("Phase\t%s, %s ready", or(string(st.Phase), "Pending"), or(st.Ready, "none"))
	p.line("Leader\t%s, epoch %d, voters %s", leader(st), st.Epoch, or(strings.Join(st.Voters, " "), "none"))
	if st.Witness != nil {
		p.line("Witness\t%s", witness(*st.Witness))
	}
	if st.Effective != nil {
		p.line("Durability\t%s", durability(st.Effective.Synchronous))
	}
	if st.ObservedGeneration != d.Generation {
		p.line("Spec\tgeneration %d is not observed yet (status is of %d)", d.Generation, st.ObservedGeneration)
	}
	p.instances(st.Instances)
	p.conditions(st.Conditions, now)
	p.requests(st.Requests, now)
	p.handOvers(st.HandOvers, now)
	return errors.Join(p.err, w.Flush())
}

// printer keeps the first error of many lines.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) instances(all []v1.InstanceStatus) {
	if len(all) == 0 {
		return
	}
	p.line("")
	p.line("INSTANCE\tROLE\tSTATE\tREADY\tPOSITION\tLAG\tNODE\tZONE\tNOTE")
	for _, i := range all {
		p.line("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", i.Name, role(i), or(i.State, "-"), yes(i.Ready), position(i), lag(i), or(i.Node, "-"), or(i.Zone, "-"), note(i))
	}
}

func (p *printer) conditions(all []metav1.Condition, now time.Time) {
	p.line("")
	p.line("CONDITION\tSTATUS\tSINCE\tREASON\tMESSAGE")
	for _, c := range all {
		p.line("%s\t%s\t%s\t%s\t%s", c.Type, c.Status, age(c.LastTransitionTime, now), c.Reason, c.Message)
	}
	p.next(all)
}

// next says what a person can do: one line for each condition that asks for something.
func (p *printer) next(conditions []metav1.Condition) {
	said := map[string]bool{}
	for _, c := range conditions {
		if todo := advice(c.Reason); todo != "" && !said[todo] {
			said[todo] = true
			p.line("")
			p.line("Next: %s.", todo)
		}
	}
}

func (p *printer) requests(all []v1.RequestStatus, now time.Time) {
	if len(all) == 0 {
		return
	}
	p.line("")
	p.line("REQUEST\tTARGET\tSTATE\tENDED\tMESSAGE")
	for _, r := range all {
		ended := "-"
		if r.FinishedAt != nil {
			ended = age(*r.FinishedAt, now)
		}
		p.line("%s %s\t%s\t%s\t%s\t%s", r.Kind, r.ID, or(r.Target, "-"), r.State, ended, r.Message)
	}
}

func (p *printer) handOvers(all []v1.HandOver, now time.Time) {
	if len(all) == 0 {
		return
	}
	p.line("")
	p.line("EPOCH\tLEADER\tBEFORE\tCAUSE\tTOOK\tLOST\tSINCE")
	for _, h := range all {
		took := "-"
		if h.DurationMillis > 0 {
			took = (time.Duration(h.DurationMillis) * time.Millisecond).String()
		}
		p.line("%d\t%s\t%s\t%s\t%s\t%s\t%s", h.Epoch, h.To, or(h.From, "-"), h.Cause, took, lostWords(h), age(h.At, now))
	}
	p.lastHandOver(all[0])
}

// causeRaise is a new epoch of a leader that went on leading.
const causeRaise = "raise"

// lastHandOver tells the newest change in detail.
func (p *printer) lastHandOver(h v1.HandOver) {
	switch {
	case h.Cause == causeRaise:
		p.line("%s leads on, with a new epoch: %s", h.To, h.Why)
	case h.Why != "":
		p.line("%s ended: %s", or(h.From, "the old leader"), h.Why)
	}
	if h.Waited != "" {
		p.line("waited: %s", h.Waited)
	}
	if h.Loss != "" {
		p.line("lost: %s", h.Loss)
	}
	var steps []string
	for _, s := range h.Steps {
		steps = append(steps, fmt.Sprintf("%s +%s", s.Name, time.Duration(s.AfterMillis)*time.Millisecond))
	}
	if len(steps) > 0 {
		p.line("epoch %d: %s", h.Epoch, strings.Join(steps, ", "))
	}
}

// lostWords is what a change of the leader lost, for a table.
func lostWords(h v1.HandOver) string {
	switch {
	case h.LostBytes != nil && *h.LostBytes == 0:
		return "nothing"
	case h.LostBytes != nil:
		return fmt.Sprintf("%d bytes", *h.LostBytes)
	case h.Loss != "":
		return "unknown"
	}
	return "-"
}

// leader that acts, or who was the last: the Lease names it until the next is elected.
func leader(st v1.DatabaseStatus) string {
	nobody := []string{v1.ReasonNoPrimary, v1.ReasonLeaseOlder, v1.ReasonMajorityLost}
	if c := meta.FindStatusCondition(st.Conditions, v1.ConditionReady); c != nil && slices.Contains(nobody, c.Reason) && st.Leader != "" {
		return "none takes writes (" + st.Leader + " is the last in the Lease)"
	}
	return or(st.Leader, "none")
}

func durability(mode v1.SynchronousMode) string {
	switch mode {
	case v1.SynchronousRequired:
		return "required: a commit is acknowledged once a majority holds it; without a majority writes wait"
	case v1.SynchronousPreferred:
		return "preferred: a commit is acknowledged once a majority holds it; without a majority writes go on, and nobody who lacks one may lead"
	case v1.SynchronousNone:
		return "none: a commit waits for no replica; the newest can be lost with the primary"
	default:
		return "unknown"
	}
}

func witness(w v1.WitnessStatus) string {
	text := w.Name + ", votes and holds no data"
	if !w.Voter {
		text = w.Name + ", has no vote yet"
	}
	if w.Node != "" {
		text += ", on " + w.Node
	}
	if w.Message != "" {
		text += ": " + w.Message
	}
	return text
}

func role(i v1.InstanceStatus) string {
	if i.Voter || i.Role == "" || i.Role == v1.RoleUnknown {
		return or(string(i.Role), string(v1.RoleUnknown))
	}
	return string(i.Role) + " (no vote yet)"
}

// position that it has, or had when it was last heard of with data.
func position(i v1.InstanceStatus) string {
	if i.Position == "" && i.LastPosition != "" {
		return "was " + i.LastPosition
	}
	return or(i.Position, "-")
}

func note(i v1.InstanceStatus) string {
	switch {
	case i.RestartPending && i.Message == "":
		return "a changed parameter waits for a restart"
	case i.Reason != "" && i.Message != "":
		return i.Reason + ": " + i.Message
	}
	return i.Message
}

func lag(i v1.InstanceStatus) string {
	if i.LagBytes == nil {
		return "-"
	}
	return bytes(*i.LagBytes)
}

func bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, exponent := float64(n), -1
	for ; value >= unit && exponent < 4; exponent++ {
		value /= unit
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[exponent])
}

func age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
