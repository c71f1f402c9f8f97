package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestCommands calls what the other tests do not call of the plugin, and pauses the operator, while clients write.
func TestCommands(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	w := d.ledger()
	d.tells()
	d.follows("status", d.key.Name, "--watch")
	d.follows("logs", d.key.Name, "--follow")
	d.refuses()

	leader, replicas := d.roles()
	before := d.began()
	d.restart(replicas[0])
	for name, then := range d.began() {
		if restarted := then != before[name]; restarted != (name == replicas[0]) {
			t.Errorf("restart of %s alone: server of %s restarted: %t", replicas[0], name, restarted)
		}
	}
	before = d.began()
	d.restart()
	for name, then := range d.began() {
		if then == before[name] {
			t.Errorf("restart of all: the server of %s runs since %s, as before", name, then)
		}
	}
	d.awaitReady(time.Minute)
	w.moves(10 * time.Second)
	d.paused(func() { w.moves(10 * time.Second) })
	account, gap := w.settle(time.Time{})
	if account.Hands() != 1 {
		t.Errorf("the writer changed %d times; the restart of all, which %s led, takes one switchover", account.Hands(), leader)
	}
	t.Logf("longest gap: %s", gap.Round(time.Millisecond))
}

// restart by the plugin: of one instance, or of all.
func (d *database) restart(instance ...string) {
	d.t.Helper()
	at := time.Now()
	out, err := d.plimsoll(append([]string{"restart", d.key.Name}, instance...)...)
	if err != nil || !strings.Contains(out, "restart of orders done: restarted ") {
		d.t.Fatalf("restart %v: %v\n%s", instance, err, out)
	}
	d.t.Logf("restart %v took %s", instance, time.Since(at).Round(100*time.Millisecond))
}

// began is when the server of each instance started.
func (d *database) began() map[string]string {
	d.t.Helper()
	found := map[string]string{}
	for name := range d.pods() {
		out, err := d.plimsoll("psql", d.key.Name, "--instance="+name, "--", "-Atc", "select pg_postmaster_start_time()")
		if err != nil {
			d.t.Fatalf("ask %s since when it runs: %v\n%s", name, err, out)
		}
		found[name] = strings.TrimSpace(out)
	}
	return found
}

// tells looks at status in both machine-readable forms, logs and version.
func (d *database) tells() {
	d.t.Helper()
	for form, read := range map[string]func([]byte, *v1.Database) error{
		"json": func(raw []byte, into *v1.Database) error { return json.Unmarshal(raw, into) },
		"yaml": func(raw []byte, into *v1.Database) error { return yaml.UnmarshalStrict(raw, into) },
	} {
		out, err := d.plimsoll("status", d.key.Name, "-o", form)
		got := &v1.Database{}
		if err == nil {
			err = read([]byte(out), got)
		}
		if err != nil || got.Kind != "Database" || got.Name != d.key.Name || got.Status.Leader == "" || len(got.Status.Instances) != 3 {
			d.t.Errorf("status -o %s (%v):\n%s", form, err, out)
		}
	}
	out, err := d.plimsoll("logs", d.key.Name)
	if err != nil {
		d.t.Errorf("logs: %v\n%s", err, out)
	}
	for name := range d.pods() {
		if !strings.Contains(out, name+` {"time":`) {
			d.t.Errorf("logs show no line of %s:\n%.2000s", name, out)
		}
	}
	out, err = d.plimsoll("logs", d.key.Name, d.key.Name+"-2", "--tail=3")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); err != nil || len(lines) != 3 || strings.Count(out, d.key.Name+"-2 {") != 3 {
		d.t.Errorf("three lines of the log of one instance (%v):\n%s", err, out)
	}
	out, err = d.plimsoll("version")
	if want := regexp.MustCompile(`(?s)^plugin +\S+ .*\noperator +\S+@sha256:\S+ \(namespace plimsoll-system\)\ncluster +v\d+\.\d+\.\d+`); err != nil || !want.MatchString(out) {
		d.t.Errorf("version (%v):\n%s", err, out)
	}
}

// follows lets a live view run for a while, and interrupts it as a person does: that is no failure.
func (d *database) follows(args ...string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 3*time.Second)
	defer cancel()
	call := d.call(ctx, args...)
	call.Cancel = func() error { return call.Process.Signal(os.Interrupt) }
	call.WaitDelay = 10 * time.Second
	out, err := call.CombinedOutput()
	// Of a command that ends well after its context, the context's end is told.
	if err != nil && !errors.Is(err, context.DeadlineExceeded) || call.ProcessState.ExitCode() != 0 || strings.Count(string(out), d.key.Name+"-2") < 2 {
		d.t.Errorf("kubectl plimsoll %s, interrupted (%v):\n%.2000s", strings.Join(args, " "), err, out)
	}
}

// refuses makes the mistakes that people make: each call fails with one line that names the mistake.
func (d *database) refuses() {
	d.t.Helper()
	leader, _ := d.roles()
	for call, want := range map[string]string{
		"status billing":                         `"billing" not found`,
		"status orders -o xml":                   "json or yaml",
		"status":                                 "accepts 1 arg",
		"switchover orders " + leader:            leader + " leads orders already",
		"switchover orders orders-9":             `no instance "orders-9"`,
		"restart orders orders-9":                `no instance "orders-9"`,
		"restart billing":                        `"billing" not found`,
		"fence orders orders-9":                  `no instance "orders-9"`,
		"logs orders orders-9":                   `no instance "orders-9"`,
		"logs orders orders-2 --previous":        "orders-2",
		"psql orders --instance=orders-9 -- -Xc": `no instance "orders-9"`,
		"rotate":                                 "accepts 1 arg",
		"promote orders":                         `unknown command "promote"`,
		"status orders --context=elsewhere":      `"elsewhere"`,
	} {
		out, err := d.plimsoll(strings.Fields(call)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err == nil || len(lines) != 1 || !strings.HasPrefix(out, "error: ") || !strings.Contains(out, want) {
			d.t.Errorf("kubectl plimsoll %s: want a failure and one line with %q (%v):\n%s", call, want, err, out)
		}
	}
	// psql has its own words for the server's; the plugin's are the last line.
	out, err := d.plimsoll("psql", "orders", "--", "-c", "select nothing")
	if err == nil || !strings.Contains(out, `column "nothing" does not exist`) || !strings.HasSuffix(strings.TrimSpace(out), "ended with code 1") {
		d.t.Errorf("psql with an error (%v):\n%s", err, out)
	}
}

// paused changes the spec while the operator is paused, and lets it act afterwards.
func (d *database) paused(meanwhile func()) {
	d.t.Helper()
	d.change(func(s *v1.DatabaseSpec) { s.Maintenance.Paused = true })
	word := func(now *v1.Database) error {
		if now.Status.ObservedGeneration != now.Generation {
			return fmt.Errorf("generation %d, observed %d", now.Generation, now.Status.ObservedGeneration)
		}
		return condition(now, v1.ConditionReconciling, metav1.ConditionFalse, v1.ReasonPaused, "spec.maintenance.paused")
	}
	d.await(10*time.Second, "paused, by its own word", word)
	pods, claims, servers := d.pods(), len(d.claims()), d.began()
	d.change(func(s *v1.DatabaseSpec) {
		s.Parameters = map[string]string{"work_mem": "7MB", "max_locks_per_transaction": "80"}
		s.Replicas = ptr.To(int32(4))
	})
	d.await(10*time.Second, "the change is seen, and nothing is done", word)
	meanwhile()
	time.Sleep(5 * time.Second)
	if now, held := d.pods(), len(d.claims()); fmt.Sprint(now) != fmt.Sprint(pods) || held != claims {
		d.t.Errorf("while paused, pods were %v and are %v, and of %d claims there are %d", pods, now, claims, held)
	}
	if after := d.began(); fmt.Sprint(after) != fmt.Sprint(servers) {
		d.t.Errorf("while paused, servers ran since %v and run since %v", servers, after)
	}
	d.set("work_mem", "4MB", 5*time.Second)
	d.change(func(s *v1.DatabaseSpec) {
		s.Maintenance.Paused = false
		s.Replicas = ptr.To(int32(3))
		delete(s.Parameters, "max_locks_per_transaction")
	})
	d.awaitReady(changeLimit)
	d.set("work_mem", "7MB", 30*time.Second)
}
