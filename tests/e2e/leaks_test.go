package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

// scales make a look at the sizes of all agents and managers, by their numbers on the machine.
func (d *database) scales(t *testing.T) func(context.Context, *testing.T) map[int]faults.Size {
	t.Helper()
	token := shared.token(t, d.key.Namespace, "monitoring")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: d.key.Namespace + "-monitoring"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plimsoll-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: d.key.Namespace, Name: "monitoring"}},
	}
	if err := shared.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Delete(context.WithoutCancel(t.Context()), binding) })
	return func(ctx context.Context, t *testing.T) map[int]faults.Size {
		t.Helper()
		of := shared.goroutines(t, token)
		found := map[int]faults.Size{}
		for namespace, program := range map[string]string{d.key.Namespace: "plimsoll-agent", managerNamespace: "manager"} {
			out, err := d.cluster.Kubectl(ctx, "", "-n", namespace, "get", "pods", "-o", "name")
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.FieldsSeq(out) {
				pod := strings.TrimPrefix(line, "pod/")
				processes, err := d.cluster.Processes(ctx, namespace, pod)
				if err != nil {
					t.Logf("%s: %v", pod, err)
					continue
				}
				for _, p := range processes {
					if strings.Contains(p.Command, program) {
						found[p.PID] = sizeOf(p.PID, pod, of[pod])
						break // the first one is the container's
					}
				}
			}
		}
		return found
	}
}

// goroutines of the managers, and of the agents that the acting one hears, by their pods.
func (s *suite) goroutines(t *testing.T, token string) map[string]int {
	t.Helper()
	own := regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)
	agents := regexp.MustCompile(`(?m)^plimsoll_instance_agent_goroutines\{.*instance="([^"]+)".*\} (\d+)$`)
	found := map[string]int{}
	for _, m := range s.managers(t) {
		code, body := scrape(t, m.Status.PodIP, token)
		if code != http.StatusOK {
			t.Logf("the metrics of %s: %d: %.200s", m.Name, code, body)
			continue
		}
		for _, of := range own.FindAllStringSubmatch(body, 1) {
			found[m.Name], _ = strconv.Atoi(of[1])
		}
		for _, of := range agents.FindAllStringSubmatch(body, -1) {
			found[of[1]], _ = strconv.Atoi(of[2])
		}
	}
	return found
}

func sizeOf(pid int, what string, goroutines int) faults.Size {
	s := faults.Size{What: what, Goroutines: goroutines}
	if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		for line := range strings.Lines(string(raw)) {
			name, value, _ := strings.Cut(line, ":")
			n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB")) // zero where it is no number
			switch name {
			case "RssAnon":
				s.Memory = n
			case "Threads":
				s.Threads = n
			}
		}
	}
	if entries, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)); err == nil {
		s.Files = len(entries)
		for _, e := range entries {
			if to, err := os.Readlink(e); err == nil && strings.HasPrefix(to, "socket:") {
				s.Sockets++
			}
		}
	}
	return s
}
