package install

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestNobodyRemovesTheCRDByAccident walks the ways in which people take the operator off, on an API server that holds a Database.
func TestNobodyRemovesTheCRDByAccident(t *testing.T) {
	k, stop := apiServer(t)
	list := func() []string {
		t.Helper()
		found, err := k.Databases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	run := func(args ...string) (string, error) {
		// No controller ends a namespace here, so that nothing may wait for an end.
		args = append([]string{"-C", root, "KUBECTL=" + k.Path + " --request-timeout=20s --kubeconfig " + k.Kubeconfig}, args...)
		out, err := exec.CommandContext(t.Context(), "make", args...).CombinedOutput()
		return string(out), err
	}
	t.Run("without the kind there is no Database, and nothing to remove", func(t *testing.T) {
		if found := list(); len(found) != 0 {
			t.Errorf("found %v", found)
		}
		if out, err := run("uninstall"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if out, err := run("uninstall", "ignore-not-found=false"); err == nil {
			t.Errorf("ignore-not-found=false ignores it:\n%s", out)
		}
	})
	if out, err := run("install"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const manifest = `{"apiVersion":"plimsoll.dev/v1","kind":"Database","metadata":{"name":"orders"},"spec":{"engine":"postgres","version":"15","storage":{"size":"1Gi"}}}`
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, err := k.Run(t.Context(), []byte(manifest), "-n", "default", "apply", "-f", "-")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	for _, target := range []string{"uninstall", "undeploy"} {
		t.Run(target+" refuses, and names the Database and the way out", func(t *testing.T) {
			out, err := run(target)
			if err == nil {
				t.Errorf("it did not refuse:\n%s", out)
			}
			for _, want := range []string{"  default/orders\n", "make " + target + " DATABASES=delete"} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			if diff := cmp.Diff([]string{"default/orders"}, list()); diff != "" {
				t.Errorf("the Databases afterwards: %s", diff)
			}
		})
	}
	t.Run("the demo's way refuses, too", func(t *testing.T) {
		err := k.RemoveOperator(t.Context(), root, Namespace)
		if want := "remove the operator: these Databases would go with it: default/orders; delete them first"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if diff := cmp.Diff([]string{"default/orders"}, list()); diff != "" {
			t.Errorf("the Databases afterwards: %s", diff)
		}
	})
	t.Run("who says that they go with it is obeyed", func(t *testing.T) {
		if out, err := run("uninstall", "DATABASES=delete"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if found := list(); len(found) != 0 {
			t.Errorf("there are still %v", found)
		}
	})
	t.Run("without an answer nobody knows, and nothing is removed", func(t *testing.T) {
		stop()
		if out, err := run("uninstall"); err == nil || strings.Contains(out, "delete --ignore-not-found") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
