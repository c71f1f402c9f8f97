package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProve shows on a real cluster that the room does what its README says. It takes about two minutes and the
// machine's only cluster, so it runs on request: PLIMSOLL_PROVE=1 go test -run TestProve ./tests/cluster.
func TestProve(t *testing.T) {
	if os.Getenv("PLIMSOLL_PROVE") == "" {
		t.Skip("set PLIMSOLL_PROVE=1 to start a cluster and prove it")
	}
	if _, err := Open(); !errors.Is(err, ErrNotUp) {
		t.Fatalf("a cluster is up: it may be somebody's (%v)", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	t.Cleanup(cancel)
	if err := Down(ctx, KeepImages, t.Logf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Down(ctx, KeepImages, t.Logf); err != nil {
			t.Error(err)
		}
	})
	start := time.Now()
	c, err := Up(ctx, UpOptions{Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %s", since(start))
	p := prover{c, ctx}
	p.apply(t, "testdata/prove.yaml")
	for _, workload := range []string{"daemonset/echo", "statefulset/writer"} {
		if err := c.Rollout(ctx, "default", workload, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	// In this order: each leaves the cluster whole for the next.
	t.Run("pods reach pods on every node", p.podToPod)
	t.Run("a Service answers by its name", p.service)
	t.Run("nothing gets out or in", p.isolation)
	t.Run("a policy keeps strangers out", p.policy)
	t.Run("kubectl works from the machine's loopback", p.loopback)
	t.Run("an image made of single files runs", p.ownImage)
	t.Run("a volume grows, fills, hangs and slows while in use", p.volumes)
	t.Run("a pod freezes and thaws, a process dies", p.pods)
	t.Run("the API server stops and starts", p.apiServer)
	t.Run("a cut works one way and both ways", p.cuts)
	t.Run("a partition shows and heals", p.partition)
	t.Run("a node loses power and comes back with its data", p.power)
	t.Run("down ends even what is frozen", p.frozenEnd)
}

type prover struct {
	c   *Cluster
	ctx context.Context
}

func since(start time.Time) time.Duration { return time.Since(start).Round(100 * time.Millisecond) }

func (p prover) apply(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.c.Apply(p.ctx, string(text)); err != nil {
		t.Fatal(err)
	}
}

func (p prover) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.c.Kubectl(p.ctx, "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// eventually fails the test unless check succeeds in time, and logs how long that took.
func (p prover) eventually(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	start := time.Now()
	if err := wait(p.ctx, limit, what, func(context.Context) error { return check() }); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s after %s", what, since(start))
}

func (p prover) exec(pod, script string) (string, error) {
	out, err := p.c.Kubectl(p.ctx, "", "exec", pod, "--", "sh", "-c", script)
	return strings.TrimSpace(out), err
}

// echoes returns the address and name of each echo pod by node.
func (p prover) echoes(t *testing.T) map[string][2]string {
	t.Helper()
	found := map[string][2]string{}
	out := p.kubectl(t, "get", "pods", "-l", "app=echo", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name} {.status.podIP}{"\n"}{end}`)
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); len(f) == 3 {
			found[f[0]] = [2]string{f[1], f[2]}
		}
	}
	return found
}

func fetch(ip string) string { return "timeout 3 wget -qO- http://" + ip } // busybox's own -T crashes

func (p prover) podToPod(t *testing.T) {
	pods := p.echoes(t)
	if len(pods) != 3 {
		t.Fatalf("pods on %d nodes, want 3", len(pods))
	}
	for _, from := range pods {
		for _, to := range pods {
			if got, err := p.exec(from[0], fetch(to[1]+":8080")); err != nil || got != to[0] {
				t.Errorf("%s from %s: got %q, %v", to[0], from[0], got, err)
			}
		}
	}
}

func (p prover) service(t *testing.T) {
	for node, pod := range p.echoes(t) {
		if got, err := p.exec(pod[0], fetch("echo.default.svc.cluster.local")); err != nil || !strings.HasPrefix(got, "echo-") {
			t.Errorf("from %s: got %q, %v", node, got, err)
		}
	}
}

func (p prover) isolation(t *testing.T) {
	// Only look-ups of routes, for an address of the range reserved for documentation: nothing is sent.
	node, err := p.c.OnNode(p.ctx, "node1", "ip", "route", "get", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := node.CombinedOutput(); err == nil {
		t.Errorf("a node has a way out: %s", out)
	}
	out, err := exec.CommandContext(p.ctx, "ip", "route", "get", controlIP).CombinedOutput()
	if err == nil {
		t.Errorf("the machine has a route into the cluster: %s", out)
	}
}

func (p prover) policy(t *testing.T) {
	pods := p.echoes(t)
	friend, stranger, target := pods["node1"], pods["node2"], pods["node3"]
	p.apply(t, "testdata/policy.yaml")
	reach := func(from [2]string) error {
		_, err := p.exec(from[0], fetch(target[1]+":8080"))
		return err
	}
	p.eventually(t, 15*time.Second, "the policy holds", func() error {
		if reach(stranger) == nil {
			return errors.New("a stranger gets in")
		}
		return nil
	})
	p.kubectl(t, "label", "pod", friend[0], "friend=yes")
	p.eventually(t, 15*time.Second, "a friend gets in", func() error { return reach(friend) })
	if reach(stranger) == nil {
		t.Error("with a friend let in, a stranger gets in as well")
	}
	p.kubectl(t, "delete", "networkpolicy", "friends")
	p.eventually(t, 15*time.Second, "without a policy everybody gets in", func() error { return reach(stranger) })
}

func (p prover) loopback(t *testing.T) {
	kubectl, err := Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(p.ctx, kubectl, "--kubeconfig", p.c.Kubeconfig(), "exec", "writer-0", "--", "echo", "hello").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "hello" {
		t.Errorf("exec by the relay: %q, %v", out, err)
	}
}

func (p prover) ownImage(t *testing.T) {
	binary, err := Binary("cluster-pause")
	if err != nil {
		t.Fatal(err)
	}
	err = p.c.PushFiles(p.ctx, "own:1", map[string]string{"bin/own": binary}, Image{Entrypoint: []string{"/bin/own"}, User: "65532"})
	if err != nil {
		t.Fatal(err)
	}
	p.kubectl(t, "run", "own", "--image=own:1")
	p.kubectl(t, "wait", "--for=condition=Ready", "pod/own", "--timeout=20s")
	p.kubectl(t, "delete", "pod", "own", "--grace-period=1")
}

func (p prover) volumes(t *testing.T) {
	const claim = "data-writer-0"
	size := func() int {
		out, err := p.exec("writer-0", "df -m /data | awk 'END {print $2}'")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(out)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := size(); n > 64 {
		t.Fatalf("the pod sees %d MiB of 64", n)
	}
	start := time.Now()
	if err := p.c.GrowVolume(p.ctx, "default", claim, "256Mi"); err != nil {
		t.Fatal(err)
	}
	t.Logf("grown after %s", since(start))
	if n := size(); n < 230 {
		t.Errorf("the running pod sees %d MiB of 256", n)
	}
	step := func(f func(context.Context, string, string) error) {
		if err := f(p.ctx, "default", claim); err != nil {
			t.Fatal(err)
		}
	}
	write := func() error {
		_, err := p.exec("writer-0", "timeout 2 dd if=/dev/zero of=/data/probe bs=64k count=16 conv=fsync")
		return err
	}
	step(p.c.FillVolume)
	if err := write(); err == nil {
		t.Error("a full volume takes more")
	}
	step(p.c.EmptyVolume)
	if err := write(); err != nil {
		t.Errorf("an emptied volume takes nothing: %v", err)
	}
	step(p.c.HangVolume)
	before, _ := p.exec("writer-0", "wc -l </data/log")
	time.Sleep(2 * time.Second)
	if after, _ := p.exec("writer-0", "wc -l </data/log"); after != before {
		t.Error("a hanging volume still takes writes")
	}
	step(p.c.ThawVolume)
	if err := p.c.SlowVolume(p.ctx, "default", claim, 100_000); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if _, err := p.exec("writer-0", "dd if=/dev/zero of=/data/probe bs=64k count=4 conv=fsync"); err != nil || time.Since(start) < time.Second {
		t.Errorf("256 KiB at 100 kB/s took %s, %v", since(start), err)
	}
	if err := p.c.SlowVolume(p.ctx, "default", claim, 0); err != nil {
		t.Fatal(err)
	}
}

func (p prover) pods(t *testing.T) {
	pods := p.echoes(t)
	target, from := pods["node2"], pods["node1"]
	if err := p.c.FreezePod(p.ctx, "default", target[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := p.exec(from[0], fetch(target[1]+":8080")); err == nil {
		t.Error("a frozen pod answers")
	}
	if err := p.c.ThawPod(p.ctx, "default", target[0]); err != nil {
		t.Fatal(err)
	}
	p.eventually(t, 10*time.Second, "a thawed pod answers", func() error {
		_, err := p.exec(from[0], fetch(target[1]+":8080"))
		return err
	})
	p.slowed(t, target[0])
	if n, err := p.c.KillProcesses(p.ctx, "default", target[0], func(p Process) bool { return strings.Contains(p.Command, "httpd") }, syscall.SIGKILL); err != nil || n == 0 {
		t.Fatalf("%d processes killed: %v", n, err)
	}
	p.eventually(t, 20*time.Second, "a killed container is restarted", func() error {
		out, err := p.c.Kubectl(p.ctx, "", "get", "pod", target[0], "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
		if err == nil && out != "1 true" {
			err = fmt.Errorf("restarts and readiness: %s", out)
		}
		return err
	})
}

// slowed gives a pod little of a processor, and it gets no more.
func (p prover) slowed(t *testing.T, pod string) {
	busy := func() time.Duration {
		start := time.Now()
		if _, err := p.exec(pod, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	before := busy()
	if err := p.c.LimitCPU(p.ctx, "default", pod, 5); err != nil {
		t.Fatal(err)
	}
	slow := busy()
	if err := p.c.LimitCPU(p.ctx, "default", pod, 0); err != nil {
		t.Fatal(err)
	}
	if slow < 3*before {
		t.Errorf("the same work took %s, and %s with 5 percent of a processor", before, slow)
	}
}

func (p prover) apiServer(t *testing.T) {
	if err := p.c.StopAPIServer(p.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := p.c.Kubectl(p.ctx, "", "get", "nodes"); err == nil {
		t.Error("a stopped API server answers")
	}
	start := time.Now()
	if err := p.c.StartAPIServer(p.ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready again after %s", since(start))
}

func (p prover) cuts(t *testing.T) {
	pods := p.echoes(t)
	reach := func(from, to string) error {
		_, err := p.exec(pods[from][0], fetch(pods[to][1]+":8080"))
		return err
	}
	if err := p.c.Cut(p.ctx, "node2", "node3"); err != nil {
		t.Fatal(err)
	}
	if reach("node2", "node3") == nil {
		t.Error("node2 reaches node3 in spite of the cut")
	}
	if err := reach("node2", "node1"); err != nil {
		t.Errorf("node2 should still reach node1: %v", err)
	}
	if err := p.c.Heal(p.ctx); err != nil {
		t.Fatal(err)
	}
	p.eventually(t, 10*time.Second, "the cut is healed", func() error { return reach("node2", "node3") })
	// One way is enough to break a conversation, so it is seen on packets: they arrive, the answers do not.
	if err := p.c.CutOneWay(p.ctx, "node3", "node2"); err != nil {
		t.Fatal(err)
	}
	if reach("node2", "node3") == nil {
		t.Error("an answer came through the cut")
	}
	if err := reach("node1", "node3"); err != nil {
		t.Errorf("node1 should still reach node3: %v", err)
	}
	if err := p.c.Heal(p.ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.c.Lose(p.ctx, "node1", 20); err != nil {
		t.Fatal(err)
	}
	if err := p.c.Heal(p.ctx); err != nil {
		t.Fatal(err)
	}
}

func (p prover) partition(t *testing.T) {
	if err := p.c.Partition(p.ctx, "node2"); err != nil {
		t.Fatal(err)
	}
	p.nodeBecomes(t, "node2", false)
	p.dials(t, "node2")
	if err := p.c.Heal(p.ctx); err != nil {
		t.Fatal(err)
	}
	p.nodeBecomes(t, "node2", true)
}

// dials connects to a pod of a node that is cut off, as a program on that node.
func (p prover) dials(t *testing.T, node string) {
	t.Helper()
	address := p.echoes(t)[node][1] + ":8080"
	for place, want := range map[string]bool{node: true, control: false} {
		dial, err := p.c.DialFrom(place)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(p.ctx, time.Second)
		conn, err := dial(ctx, "tcp", address)
		cancel()
		if (err == nil) != want {
			t.Errorf("connect to %s of the cut-off %s from %s: %v", address, node, place, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

func (p prover) nodeBecomes(t *testing.T, node string, ready bool) {
	t.Helper()
	start := time.Now()
	if err := p.c.WaitNode(p.ctx, node, ready, time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: ready is %v after %s", node, ready, since(start))
}

func (p prover) power(t *testing.T) {
	node := p.kubectl(t, "get", "pod", "writer-0", "-o", "jsonpath={.spec.nodeName}")
	before, err := p.exec("writer-0", "head -1 /data/log")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := p.c.PowerOff(p.ctx, node); err != nil {
		t.Fatal(err)
	}
	t.Logf("off after %s", since(start))
	if loops, err := p.c.loopDevices(node); err != nil || len(loops) > 0 {
		t.Errorf("a node without power holds %v, %v", loops, err)
	}
	p.nodeBecomes(t, node, false)
	if err := p.c.PowerOn(p.ctx, node); err != nil {
		t.Fatal(err)
	}
	p.nodeBecomes(t, node, true)
	p.eventually(t, time.Minute, "the pod has its old data", func() error {
		after, err := p.exec("writer-0", "head -1 /data/log")
		if err == nil && after != before {
			err = fmt.Errorf("the first line was %q and is %q", before, after)
		}
		return err
	})
}

func (p prover) frozenEnd(t *testing.T) {
	if err := p.c.HangVolume(p.ctx, "default", "data-writer-0"); err != nil {
		t.Fatal(err)
	}
	if err := p.c.FreezePod(p.ctx, "default", p.echoes(t)["node1"][0]); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond) // until the writer waits for its volume
	if err := Down(p.ctx, KeepAll, t.Logf); err != nil {
		t.Fatal(err)
	}
}
