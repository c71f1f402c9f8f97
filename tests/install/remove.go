package install

import (
	"context"
	"fmt"
	"strings"
)

// Databases are those of the whole cluster, each as namespace/name; none where there is no such kind.
func (k Kubectl) Databases(ctx context.Context) ([]string, error) {
	crd, err := k.Run(ctx, nil, "get", "crd", "databases.plimsoll.dev", "--ignore-not-found", "-o", "name")
	if err != nil {
		return nil, fmt.Errorf("look for the kind Database: %w", err)
	}
	if crd == "" {
		return nil, nil
	}
	found, err := k.Run(ctx, nil, "get", "databases.plimsoll.dev", "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	if err != nil {
		return nil, fmt.Errorf("list the Databases of the cluster: %w", err)
	}
	return strings.Fields(found), nil
}

// RemoveOperator removes it and the CRDs, which no Database outlives: it refuses while there is one.
func (k Kubectl) RemoveOperator(ctx context.Context, root, namespace string) error {
	left, err := k.Databases(ctx)
	if err != nil {
		return fmt.Errorf("remove the operator: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("remove the operator: these Databases would go with it: %s; delete them first", strings.Join(left, ", "))
	}
	manifests, err := Manifests(ctx, k.Log, root, repository+":latest", namespace)
	if err != nil {
		return err
	}
	if _, err := k.Run(ctx, manifests, "delete", "--ignore-not-found", "--timeout=3m", "-f", "-"); err != nil {
		return fmt.Errorf("remove the operator: %w", err)
	}
	return nil
}
