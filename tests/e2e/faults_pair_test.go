package e2e

import (
	"context"
	"errors"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

// pairKind is a Database of two instances and their witness, as its spec has it by default: either goes on without the other.
const pairKind = "pair"

// pairEvents hurt it. With three nodes, each of which holds one of the three voters.
func pairEvents() []event {
	of := func(e event) event {
		before := e.before
		e.kind, e.spec = pairKind, func(d *v1.Database) { d.Spec.Replicas = ptr.To[int32](2) }
		e.before = func(ctx context.Context, s *scene) error {
			if err := s.inStep(ctx); err != nil || before == nil {
				return err
			}
			return before(ctx, s)
		}
		return e
	}
	var all []event
	for _, e := range mainEvents() {
		if e.Name == "storage-hang" || e.Name == "process-kill-all" {
			continue
		}
		e.main = e.Name == "process-kill" || e.Name == "pod-delete" || e.Name == "node-loss"
		e.Name, e.Note = pairKind+"-"+e.Name, "two instances and a witness: "+e.Note
		all = append(all, of(e))
	}
	return append(all,
		of(event{
			Event: faults.Event{Name: pairKind + "-replica-loss", Target: 5, Note: "two instances and a witness: the replica's pod deleted by force; writes go on once the Lease says so"},
			hurt:  func(ctx context.Context, s *scene) error { return s.deletePod(ctx, s.replicas[0].Name) }, either: true,
		}),
		of(event{
			Event: faults.Event{Name: pairKind + "-witness-loss", Note: "two instances and a witness: the witness's pod deleted by force; nobody notices, and another one gets the vote"},
			hurt: func(ctx context.Context, s *scene) error {
				now, err := s.get(ctx)
				if err != nil {
					return err
				}
				return s.deletePod(ctx, now.Status.Witness.Name)
			},
			calm: true, hold: watched,
			after: func(ctx context.Context, s *scene) error { return s.inStep(ctx) },
		}),
	)
}

// inStep waits until the witness votes and either instance may lead.
func (s *scene) inStep(ctx context.Context) error {
	return until(ctx, 90*time.Second, func() error {
		now, err := s.get(ctx)
		switch {
		case err != nil:
			return err
		case now.Status.Witness == nil || !now.Status.Witness.Voter || now.Status.Witness.Message != "":
			return fmt.Errorf("the witness is %+v", now.Status.Witness)
		}
		for _, c := range now.Status.Conditions {
			if c.Type == v1.ConditionDurable && c.Status != metav1.ConditionTrue {
				return errors.New("not durable: " + c.Message)
			}
		}
		return s.apart(ctx, now)
	})
}

// apart says that no two of the three voters share a node, and that the witness is behind no Service for clients.
func (s *scene) apart(ctx context.Context, now *v1.Database) error {
	nodes := map[string]string{now.Status.Witness.Node: now.Status.Witness.Name}
	for _, i := range now.Status.Instances {
		if other := nodes[i.Node]; other != "" {
			return fmt.Errorf("%s and %s share the node %s", i.Name, other, i.Node)
		}
		nodes[i.Node] = i.Name
	}
	slices := &discoveryv1.EndpointSliceList{}
	if err := s.List(ctx, slices, client.InNamespace(s.key.Namespace)); err != nil {
		return err
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			forMembers := slice.Labels[discoveryv1.LabelServiceName] == s.key.Name+"-members"
			if e.TargetRef != nil && e.TargetRef.Name == now.Status.Witness.Name && !forMembers {
				return fmt.Errorf("clients are sent to the witness by %s", slice.Name)
			}
		}
	}
	return nil
}
