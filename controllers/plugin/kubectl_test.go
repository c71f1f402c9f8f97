package plugin

import (
	stdbytes "bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// pods are what a kubectl of the test's own finds: what the agent of each writes, and how it ends if it does before its standard input.
type pods map[string]pod

type pod struct {
	lines []view.Line
	raw   string // instead
	every string // seconds between two lines
	words string
	code  int
}

// kubectl writes the program, which leaves what it was called with in "args", and a file in "ended" for each that ended with its standard input.
func (p pods) kubectl(t *testing.T) (program, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, sub := range []string{"args", "ended"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, of := range p {
		text := of.raw
		for _, l := range of.lines {
			raw, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			text += string(raw) + "\n"
		}
		write(t, filepath.Join(dir, name), text, 0o644)
		write(t, filepath.Join(dir, name+".words"), of.words, 0o644)
		if of.every != "" {
			write(t, filepath.Join(dir, name+".every"), of.every, 0o644)
		}
		if of.code != 0 {
			write(t, filepath.Join(dir, name+".code"), fmt.Sprint(of.code), 0o644)
		}
	}
	program = filepath.Join(dir, "kubectl")
	write(t, program, `#!/bin/sh
cd "$(dirname "$0")" || exit 9
for word; do
	case "$word" in orders-*) pod=$word;; esac
done
echo "$@" >"args/$pod"
cat "$pod.words" >&2
if [ -e "$pod.every" ]; then
	while read -r line; do
		echo "$line"
		sleep "$(cat "$pod.every")"
	done <"$pod"
else
	cat "$pod"
fi
if [ -e "$pod.code" ]; then exit "$(cat "$pod.code")"; fi
cat >/dev/null
touch "ended/$pod"
`, 0o755)
	return program, dir
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// written is a buffer that is read while it is written.
type written struct {
	sync.Mutex
	stdbytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	return w.Buffer.Write(p)
}

func (w *written) String() string {
	w.Lock()
	defer w.Unlock()
	return w.Buffer.String()
}

// call is one run of a command beside pods.
type call struct {
	out, err written
	dir      string
}

// run a command until it ends.
func (c *call) run(ctx context.Context, t *testing.T, p pods, args ...string) error {
	t.Helper()
	live := httptest.NewServer(&server{database: running()})
	defer live.Close()
	config := filepath.Join(t.TempDir(), "config")
	write(t, config, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"x","namespace":"shop"}}]}`, live.URL), 0o600)
	program, dir := p.kubectl(t)
	c.dir = dir
	root := New(Config{Streams: Streams{In: strings.NewReader(""), Out: &c.out, Err: &c.err}, Version: "test", Kubectl: program, Now: func() time.Time { return noon }})
	root.SetArgs(append([]string{"--kubeconfig", config}, args...))
	return root.ExecuteContext(ctx)
}

// begin runs a command beside the test; the result comes when it has ended.
func (c *call) begin(t *testing.T, p pods, args ...string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- c.run(t.Context(), t, p, args...) }()
	return ended
}

// interrupt the program as a person does, once there is output that says that it is under way.
func (c *call) interrupt(t *testing.T, ended <-chan error, until func() bool) error {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !until(); {
		select {
		case err := <-ended:
			t.Fatalf("it ended early: %v\n%s%s", err, c.out.String(), c.err.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("it says\n%s\nand\n%s", c.out.String(), c.err.String())
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return <-ended
}

// endedByInput names the pods whose program ended because its standard input did.
func (c *call) endedByInput(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(c.dir, "ended"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (c *call) args(t *testing.T, pod string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, "args", pod))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestPsqlRunsKubectl(t *testing.T) {
	var c call
	if err := c.run(t.Context(), t, pods{"orders-1": {raw: "1\n"}}, "psql", "orders", "--context", "x", "--as", "ada", "--as-group", "a", "--as-group", "b", "--", "-c", "SELECT"); err != nil {
		t.Fatal(err)
	}
	got := c.args(t, "orders-1")
	const before, after = "exec --namespace=shop --container=database --stdin --as=ada --as-group=a --as-group=b --context=x --kubeconfig=", " orders-1 -- psql --host=/run/plimsoll --username=postgres -c SELECT\n"
	if !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) {
		t.Errorf("kubectl %s", got)
	}
	if c.out.String() != "1\n" {
		t.Errorf("it says %q", c.out.String())
	}
}
