package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// routed waits until the Services for reads lead where they should: -ro to each replica and never to the primary, -r to all.
func (d *database) routed() {
	d.t.Helper()
	leader, replicas := d.roles()
	behind := map[string]bool{}
	for _, name := range replicas {
		behind[name] = true
	}
	all := maps.Clone(behind)
	all[leader] = false
	for service, want := range map[string]map[string]bool{d.key.Name + "-ro": behind, d.key.Name + "-r": all} {
		took := eventually(d.t.Context(), d.t, 15*time.Second, fmt.Sprintf("Service %s leads to %v (true: it replays)", service, want), func() error {
			got, err := d.answering(service)
			if err != nil {
				return err
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("it leads to %v", got)
			}
			return nil
		})
		d.t.Logf("Service %s leads to %v after %s", service, want, took.Round(10*time.Millisecond))
	}
}

// answering opens session after session through a Service, verified as its name, and says who answered and whether that one replays.
func (d *database) answering(service string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Second)
	defer cancel()
	svc := &corev1.Service{}
	if err := d.Get(ctx, client.ObjectKey{Namespace: d.key.Namespace, Name: service}, svc); err != nil {
		return nil, err
	}
	config, err := d.connection(ctx, svc.Spec.ClusterIP, service+"."+d.key.Namespace+".svc")
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for range 20 {
		c, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return nil, fmt.Errorf("through Service %s: %w", service, err)
		}
		var name string
		var replays bool
		err = c.QueryRow(ctx, "SELECT current_setting('cluster_name'), pg_is_in_recovery()").Scan(&name, &replays)
		_ = c.Close(ctx)
		if err != nil {
			return nil, fmt.Errorf("through Service %s: %w", service, err)
		}
		found[name] = replays
	}
	return found, nil
}

// TestAdmission asks the installed webhooks, which nobody would miss: where one does not answer, the API server goes on without it.
func TestAdmission(t *testing.T) {
	t.Parallel()
	namespace := shared.namespace(t)
	ns := &corev1.Namespace{}
	if err := shared.Get(t.Context(), client.ObjectKey{Name: namespace}, ns); err != nil {
		t.Fatal(err)
	}
	was := ns.DeepCopy()
	ns.Labels[v1.LabelRegion] = "eu-north"
	if err := shared.Patch(t.Context(), ns, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}

	wrong := orders(namespace, 1)
	wrong.Spec.Parameters = v1.Parameters{"port": "1"}
	err := shared.Create(t.Context(), wrong, client.DryRunAll)
	const words = `admission webhook "databases.validate.plimsoll.dev" denied the request: Database.plimsoll.dev "orders" is invalid: spec.parameters[port]: Invalid value: "1": port is managed by Plimsoll: Services and certificates expect port 5432`
	if !apierrors.IsInvalid(err) || err.Error() != words {
		t.Errorf("a Database with another port: %v\nwant: %s", err, words)
	}

	d := shared.create(t, orders(namespace, 1))
	now, err := d.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now.Spec.Region != "eu-north" {
		t.Errorf("the region is %q; the namespace says eu-north", now.Spec.Region)
	}
	elsewhere := orders(namespace, 1)
	elsewhere.Name, elsewhere.Spec.Region = "elsewhere", "us-west"
	if err := shared.Create(t.Context(), elsewhere, client.DryRunAll); err != nil || elsewhere.Spec.Region != "us-west" {
		t.Errorf("a region of the Database's own became %q (%v)", elsewhere.Spec.Region, err)
	}
}
