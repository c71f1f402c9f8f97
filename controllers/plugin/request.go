package plugin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func newSwitchover(s *session) *cobra.Command {
	r := request{session: s, annotation: v1.AnnotationSwitchover, kind: "switchover", timeout: 10 * time.Minute}
	c := &cobra.Command{
		Use:   "switchover DATABASE [INSTANCE]",
		Short: "Hand the lead to another instance, with nothing lost",
		Example: `  # Hand the lead to orders-2
  kubectl plimsoll switchover orders orders-2

  # To the best replica, and give up if it has not begun within ten seconds
  kubectl plimsoll switchover orders --expires 10s`,
		Args: cobra.RangeArgs(1, 2),
		RunE: r.run,
	}
	r.flags(c)
	return c
}

func newRestart(s *session) *cobra.Command {
	r := request{session: s, annotation: v1.AnnotationRestart, kind: "restart", timeout: 10 * time.Minute}
	c := &cobra.Command{
		Use:   "restart DATABASE [INSTANCE]",
		Short: "Restart the servers one after another, replicas first; or one instance",
		Example: `  # Restart all servers, one after another
  kubectl plimsoll restart orders

  # Restart one, and do not wait for the end of it
  kubectl plimsoll restart orders orders-3 --no-wait`,
		Args: cobra.RangeArgs(1, 2),
		RunE: r.run,
	}
	r.flags(c)
	return c
}

func newRotate(s *session) *cobra.Command {
	// The new authority is trusted for a while before it signs: the manager's --rotation-trust.
	r := request{session: s, annotation: v1.AnnotationRotate, kind: "rotate", timeout: 30 * time.Minute}
	c := &cobra.Command{
		Use:   "rotate DATABASE",
		Short: "Change the certificate authority and every certificate, with nobody cut off",
		Example: `  # Change every certificate, and wait half an hour at most for the last instance to use its own
  kubectl plimsoll rotate orders --timeout 30m`,
		Args: cobra.ExactArgs(1),
		RunE: r.run,
	}
	r.flags(c)
	return c
}

// request asks for something once, by an annotation, and waits for the answer in status.
type request struct {
	*session
	annotation, kind string
	expires, timeout time.Duration
	// leaseVersion and acceptLoss are a recovery's.
	leaseVersion string
	acceptLoss   bool
	noWait       bool
}

func (r *request) flags(c *cobra.Command) {
	c.Flags().DurationVar(&r.expires, "expires", time.Minute, "give up if it has not begun by then")
	c.Flags().DurationVar(&r.timeout, "timeout", r.timeout, "how long to wait for the answer")
	c.Flags().BoolVar(&r.noWait, "no-wait", false, "ask, print the request's id, and do not wait for the answer")
}

func (r *request) run(cmd *cobra.Command, args []string) error {
	k, err := r.connect()
	if err != nil {
		return err
	}
	d, err := k.database(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	target := ""
	if len(args) == 2 {
		target = args[1]
		if err := instance(d, target); err != nil {
			return err
		}
	}
	if r.kind == "switchover" && target != "" && target == d.Status.Leader {
		return fmt.Errorf("%s leads %s already", target, d.Name)
	}
	id, err := r.ask(cmd.Context(), k, d.Name, target)
	if err != nil {
		return err
	}
	if r.noWait {
		_, err := fmt.Fprintln(r.Streams.Out, id)
		return err
	}
	return r.await(cmd.Context(), k, d.Name, id)
}

func (r *request) ask(ctx context.Context, k *cluster, name, target string) (string, error) {
	id, err := newID()
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(v1.Request{
		ID: id, Target: target, Expires: r.Now().Add(r.expires).UTC().Format(time.RFC3339), LeaseVersion: r.leaseVersion, AcceptLoss: r.acceptLoss,
	})
	if err != nil {
		return "", fmt.Errorf("encode the %s of %s: %w", r.kind, name, err)
	}
	return id, k.annotate(ctx, name, r.annotation, func(string) string { return string(raw) })
}

// await polls for the answer; a request that fails or expires is an error.
func (r *request) await(ctx context.Context, k *cluster, name, id string) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	said := ""
	tick := time.NewTicker(watchPeriod / 4)
	defer tick.Stop()
	for {
		d, err := k.database(ctx, name)
		if ctx.Err() != nil {
			return fmt.Errorf("no answer to %s %s of %s within %s: kubectl plimsoll status %s shows how far it is", r.kind, id, name, r.timeout, name)
		}
		if err != nil {
			return err
		}
		answer, found := answered(d, r.kind, id)
		switch {
		case found && answer.State == v1.RequestDone:
			_, err := fmt.Fprintf(r.Streams.Out, "%s of %s done: %s\n", r.kind, name, or(answer.Message, "leader is "+d.Status.Leader))
			return err
		case found && answer.State != v1.RequestRunning:
			return fmt.Errorf("%s of %s %s: %s", r.kind, name, answer.State, or(answer.Message, "no reason given"))
		case found && answer.Message != said:
			said = answer.Message
			if _, err := fmt.Fprintln(r.Streams.Err, said); err != nil {
				return fmt.Errorf("write progress: %w", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// answered finds the answer to a request. Ids are unique within a kind only.
func answered(d *v1.Database, kind, id string) (v1.RequestStatus, bool) {
	for _, a := range d.Status.Requests {
		if a.Kind == kind && a.ID == id {
			return a, true
		}
	}
	return v1.RequestStatus{}, false
}

// annotate gives one annotation of a Database the value that change makes of the one that it has, or removes it where that is
// empty; it touches nothing else. The operator may write the status in between: then it is read and changed again.
func (c *cluster) annotate(ctx context.Context, name, key string, change func(now string) string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		d, err := c.database(ctx, name)
		if err != nil {
			return err
		}
		return c.setAnnotation(ctx, d, key, change(d.Annotations[key]))
	})
}

func (c *cluster) setAnnotation(ctx context.Context, d *v1.Database, key, value string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var v any = value
	if value == "" {
		v = nil
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: v}, "resourceVersion": d.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("encode annotation %s of %s: %w", key, d.Name, err)
	}
	target := &v1.Database{}
	target.Namespace, target.Name = d.Namespace, d.Name
	if err := c.Patch(ctx, target, client.RawPatch("application/merge-patch+json", raw), client.FieldOwner("kubectl-plimsoll")); err != nil {
		return fmt.Errorf("annotate Database %s: %w", d.Name, err)
	}
	return nil
}

func newID() (string, error) {
	raw := make([]byte, 4)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make a request id: %w", err)
	}
	return hex.EncodeToString(raw), nil
}
