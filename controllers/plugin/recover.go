package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func newRecover(s *session) *cobra.Command {
	r := request{session: s, annotation: v1.AnnotationRecover, kind: "recover", timeout: 5 * time.Minute}
	var from string
	c := &cobra.Command{
		Use:   "recover DATABASE --from INSTANCE",
		Short: "Give the lead to one instance after a majority is lost for good; shows first what would be lost",
		Long: `Give the lead to one instance after the volumes of a majority of the voters are lost for good.

Without --accept-loss it changes nothing, and shows how far every instance has got and what would be lost. With it, the instance becomes
the only voter with a new epoch, unless the Lease has changed meanwhile or anybody who runs knows of a leader. All others come back
without a vote, and are rewound or copied anew. What they alone hold is lost.

Before you use it make sure that the lost instances do not run: a node that is only cut off may still serve clients. Power it off.`,
		Example: `  # What every instance has, and what would be lost
  kubectl plimsoll recover orders --from orders-2

  # Do it
  kubectl plimsoll recover orders --from orders-2 --accept-loss`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return r.recover(cmd.Context(), args[0], from) },
	}
	r.flags(c)
	c.Flags().StringVar(&from, "from", "", "the instance that is to lead: the one that has got furthest")
	c.Flags().BoolVar(&r.acceptLoss, "accept-loss", false, "do it: what the instance lacks is lost")
	return c
}

func (r *request) recover(ctx context.Context, name, from string) error {
	if from == "" {
		return errors.New("name the instance that is to lead with --from: kubectl plimsoll status " + name + " shows how far each has got")
	}
	k, err := r.connect()
	if err != nil {
		return err
	}
	d, err := k.database(ctx, name)
	if err != nil {
		return err
	}
	if err := instance(d, from); err != nil {
		return err
	}
	record, err := k.leadership(ctx, name)
	if err != nil {
		return err
	}
	if err := Losses(r.Streams.Out, d, record, from); err != nil {
		return err
	}
	if err := recoverable(d, from); err != nil {
		return err
	}
	if !r.acceptLoss {
		return fmt.Errorf("nothing was changed: to give the lead to %s and accept the loss above, run it again with --accept-loss", from)
	}
	r.leaseVersion = record.Version
	id, err := r.ask(ctx, k, name, from)
	if err != nil {
		return err
	}
	if r.noWait {
		_, err := fmt.Fprintln(r.Streams.Out, id)
		return err
	}
	return r.await(ctx, k, name, id)
}

// recoverable says why there is nothing to recover, or no way to.
func recoverable(d *v1.Database, from string) error {
	spec := d.Spec.Maintenance
	switch {
	case spec.Paused:
		return fmt.Errorf("database %s is paused: set spec.maintenance.paused to false first", d.Name)
	case spec.Hibernated:
		return fmt.Errorf("database %s is hibernated: set spec.maintenance.hibernated to false first", d.Name)
	case slices.Contains(append(Fenced(d.Annotations[v1.AnnotationFence]), spec.Fenced...), from):
		return fmt.Errorf("%s is fenced: kubectl plimsoll unfence %s %s first", from, d.Name, from)
	}
	for _, i := range d.Status.Instances {
		if i.Role == v1.RolePrimary && i.Ready {
			return fmt.Errorf("%s leads and serves: nothing is lost, and nothing is to recover", i.Name)
		}
		if i.Name == from && i.Position == "" {
			return fmt.Errorf("%s tells of no data (%s): name another instance, or bring a volume's content back from a backup", from, or(i.Message, or(i.State, "it is silent")))
		}
	}
	return nil
}

// Leadership is what the plugin reads of the Lease.
type Leadership struct {
	// Version is the resourceVersion of the Lease.
	Version string `json:"-"`
	// Epoch, Leader and Voters of the newest record; Epoch 0 if the Lease holds none.
	Epoch  int64    `json:"epoch"`
	Leader string   `json:"leader"`
	Voters []string `json:"voters"`
}

// leadership reads the Lease itself, since status may be behind it.
func (c *cluster) leadership(ctx context.Context, name string) (Leadership, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := c.pods.CoordinationV1().Leases(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Leadership{}, fmt.Errorf("the Lease %s is missing: the operator makes it again within seconds, run this again then; if it does not, see that the operator runs", name)
	}
	if err != nil {
		return Leadership{}, fmt.Errorf("read Lease %s in namespace %s, which says who led and who votes: %w", name, c.namespace, err)
	}
	l := Leadership{}
	if raw := lease.Annotations[v1.AnnotationLeadership]; raw != "" {
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			return Leadership{}, fmt.Errorf("read the annotation %s of Lease %s: %w", v1.AnnotationLeadership, name, err)
		}
	}
	l.Version = lease.ResourceVersion
	return l, nil
}

// Losses writes how far every instance has got, and what would be lost if one of them led.
func Losses(out io.Writer, d *v1.Database, l Leadership, from string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	p := printer{w: w}
	p.line("Database\t%s/%s", d.Namespace, d.Name)
	if l.Epoch > 0 {
		p.line("Lease\tepoch %d, leader %s, voters %s (resourceVersion %s)", l.Epoch, l.Leader, strings.Join(l.Voters, " "), l.Version)
	} else {
		p.line("Lease\tholds no leadership: it was deleted, or restored from a backup (resourceVersion %s)", l.Version)
	}
	p.line("")
	p.line("INSTANCE\tVOTE\tSTATE\tPOSITION\tLAST HEARD OF AT\tNOTE")
	for _, i := range d.Status.Instances {
		note := i.Message
		if i.Name == from {
			note = "would lead, alone at first"
		}
		p.line("%s\t%s\t%s\t%s\t%s\t%s", i.Name, yes(slices.Contains(l.Voters, i.Name)), or(i.State, "-"), or(i.Position, "-"), or(i.LastPosition, "-"), note)
	}
	p.line("")
	p.line("What would be lost if %s led:", from)
	for _, line := range losses(d, l, from) {
		p.line("  %s", line)
	}
	return errors.Join(p.err, w.Flush())
}

// losses says what is known of the loss: exactly where that is known, and that it is not where it is not.
func losses(d *v1.Database, l Leadership, from string) []string {
	own := positionOf(d, from)
	at, known := parsePosition(own)
	if !known {
		return []string{"unknown: how far " + from + " has got is not known"}
	}
	var out []string
	ahead := false
	for _, i := range d.Status.Instances {
		last := or(i.Position, i.LastPosition)
		other, ok := parsePosition(last)
		if i.Name != from && ok && other > at {
			ahead = true
			out = append(out, fmt.Sprintf("at least %d bytes of the log: %s was at %s, and %s is at %s", other-at, i.Name, last, from, own))
		}
	}
	switch {
	case l.Epoch == 0:
		return append(out, "beyond that unknown: the Lease does not tell who led last")
	case older(d):
		return append(out, "beyond that unknown: the Lease is older than what the instances saw there, and does not tell who led last; an instance that is not heard may have got further")
	case from == l.Leader && !ahead:
		return []string{"nothing that was acknowledged: " + from + " led last (epoch " + fmt.Sprint(l.Epoch) + ") and holds all that it acknowledged"}
	case !slices.Contains(l.Voters, from):
		return append(out, "beyond that unknown: "+from+" had no vote, so no write waited for it")
	case d.Status.Effective != nil && d.Status.Effective.Synchronous != v1.SynchronousRequired:
		return append(out, "beyond that unknown: writes did not always wait for replicas")
	default:
		return append(out, "beyond that unknown: what "+l.Leader+" acknowledged with others after "+own+"; status follows a busy server in steps of 16 MiB")
	}
}

// older says that the Lease is not the newest that there was.
func older(d *v1.Database) bool {
	c := meta.FindStatusCondition(d.Status.Conditions, v1.ConditionReady)
	return c != nil && c.Reason == v1.ReasonLeaseOlder
}

func positionOf(d *v1.Database, name string) string {
	for _, i := range d.Status.Instances {
		if i.Name == name {
			return i.Position
		}
	}
	return ""
}

// parsePosition reads a position as PostgreSQL writes it.
func parsePosition(text string) (uint64, bool) {
	var high, low uint32
	if n, err := fmt.Sscanf(text, "%X/%X", &high, &low); err != nil || n != 2 {
		return 0, false
	}
	return uint64(high)<<32 | uint64(low), true
}
