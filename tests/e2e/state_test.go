package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// pods of the Database, each by its UID and how often its containers were restarted.
func (d *database) pods() map[string]string {
	d.t.Helper()
	list := &corev1.PodList{}
	if err := d.List(d.t.Context(), list, client.InNamespace(d.key.Namespace), client.MatchingLabels{v1.LabelDatabase: d.key.Name}); err != nil {
		d.t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range list.Items {
		restarts := int32(0)
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		found[p.Name] = fmt.Sprintf("%s, %d restarts", p.UID, restarts)
	}
	return found
}

// claims by name.
func (d *database) claims() map[string]corev1.PersistentVolumeClaim {
	d.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	if err := d.List(d.t.Context(), list, client.InNamespace(d.key.Namespace), client.MatchingLabels{v1.LabelDatabase: d.key.Name}); err != nil {
		d.t.Fatal(err)
	}
	found := map[string]corev1.PersistentVolumeClaim{}
	for _, c := range list.Items {
		found[c.Name] = c
	}
	return found
}

// roles are the leader and the replicas now.
func (d *database) roles() (leader string, replicas []string) {
	d.t.Helper()
	now, err := d.get(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, i := range now.Status.Instances {
		if i.Role == v1.RoleReplica {
			replicas = append(replicas, i.Name)
		}
	}
	return now.Status.Leader, replicas
}

// fence stops the servers of instances, and waits until they are.
func (d *database) fence(instances ...string) {
	d.t.Helper()
	if out, err := d.plimsoll(append([]string{"fence", d.key.Name}, instances...)...); err != nil {
		d.t.Fatalf("fence %v: %v\n%s", instances, err, out)
	}
	d.await(time.Minute, fmt.Sprintf("%v fenced", instances), func(now *v1.Database) error {
		for _, i := range now.Status.Instances {
			if slices.Contains(instances, i.Name) && (i.State != "fenced" || i.Ready) {
				return fmt.Errorf("%s is %s", i.Name, i.State)
			}
		}
		return nil
	})
}

func (d *database) unfence(instances ...string) {
	d.t.Helper()
	if out, err := d.plimsoll(append([]string{"unfence", d.key.Name}, instances...)...); err != nil {
		d.t.Fatalf("unfence %v: %v\n%s", instances, err, out)
	}
}

// session of the owner through the -rw Service, which stays open until the test ends.
func (d *database) session() *pgx.Conn {
	d.t.Helper()
	config, err := d.writable(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	session, err := pgx.ConnectConfig(d.t.Context(), config)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = session.Close(ctx)
	})
	return session
}

// set waits for a parameter on the leader.
func (d *database) set(parameter, want string, limit time.Duration) {
	d.t.Helper()
	eventually(d.t.Context(), d.t, limit, parameter+" is "+want, func() error {
		out, err := d.plimsoll("psql", d.key.Name, "--", "-Atc", "show "+parameter)
		if err != nil || strings.TrimSpace(out) != want {
			return fmt.Errorf("it is %q (%w)", out, err)
		}
		return nil
	})
}
