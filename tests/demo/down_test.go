package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/install"
)

// TestDownLeavesOtherPeoplesDatabases takes the demo off a cluster of somebody's own, with a Database on it that is not the demo's and
// then without.
func TestDownLeavesOtherPeoplesDatabases(t *testing.T) {
	dir := t.TempDir()
	api, err := cluster.StartAPI(t.Context(), dir)
	if errors.Is(err, cluster.ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Stop)
	kubectl, err := cluster.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	// As a person has it.
	t.Setenv("KUBECONFIG", api.Kubeconfig)
	t.Setenv("PATH", filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	log, err := os.Create(filepath.Join(dir, "demo.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := &demo{options: options{cluster: "current", namespace: install.Namespace}, root: "../..", log: log, progress: newProgress(log)}
	k := install.Kubectl{Path: "kubectl", Log: log}
	must := func(stdin string, args ...string) {
		t.Helper()
		if out, err := k.Run(t.Context(), []byte(stdin), args...); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	must("", "apply", "-f", "../../config/crd/bases/plimsoll.dev_databases.yaml")
	if err := k.Established(t.Context(), "databases.plimsoll.dev"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if _, err := k.Run(t.Context(), nil, "get", "databases.plimsoll.dev"); err == nil || time.Now().After(deadline) {
			break // what follows says why not
		}
	}
	for _, space := range []string{namespace, "shop"} {
		must("", "create", "namespace", space)
		must("", "-n", space, "apply", "-f", "../../"+sample)
	}
	list := func() []string {
		t.Helper()
		found, err := k.Databases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}

	err = d.down(t.Context())
	want := "nothing was removed: the operator's CRD would go, and with it Databases that are not the demo's: shop/orders. " +
		"To remove the demo alone: kubectl delete namespace plimsoll-demo. To remove the operator too, delete those Databases first"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if diff := cmp.Diff([]string{"plimsoll-demo/orders", "shop/orders"}, list()); diff != "" {
		t.Fatalf("the Databases afterwards: %s", diff)
	}

	must("", "-n", "shop", "delete", "database", name)
	finish(t, k)
	if err := d.down(t.Context()); err != nil {
		t.Errorf("with nobody else's: %v", err)
	}
	if out, err := k.Run(t.Context(), nil, "get", "crd", "databases.plimsoll.dev", "--ignore-not-found", "-o", "name"); err != nil || out != "" {
		t.Errorf("the CRD is still there: %q, %v", out, err)
	}
}

// finish does what a namespace's controller would: there is none beside this API server, and a deletion would wait for it.
func finish(t *testing.T, k install.Kubectl) {
	t.Helper()
	if _, err := k.Run(t.Context(), nil, "-n", namespace, "delete", "database", name); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Run(t.Context(), nil, "delete", "namespace", namespace, "--wait=false"); err != nil {
		t.Fatal(err)
	}
	space, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}, "spec": map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Run(t.Context(), space, "replace", "--raw", "/api/v1/namespaces/"+namespace+"/finalize", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}
