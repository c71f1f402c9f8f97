package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// joinAndRun enters the cgroups $1 (in every hierarchy, before anything else of the process happens) and becomes
// the command. It is a shell script because a Go program cannot fork without exec.
const joinAndRun = `for d in $1; do echo $$ >"$d/cgroup.procs" || exit 125; done; shift; exec "$@"`

// daemon is a process of the cluster that outlives the tool.
type daemon struct {
	name   string // of its log and pid file
	cgroup string
	enter  []string // nsenter with its arguments
	env    []string
	args   []string
}

// start starts a daemon. Its cgroup is its only leash: down ends it there.
func (c *Cluster) start(d daemon) error {
	dirs, err := cgroupDirs(d.cgroup)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(mustDir(c.Logs()), d.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	defer log.Close()
	args := append([]string{"-c", joinAndRun, d.name, strings.Join(dirs, " ")}, d.enter...)
	cmd := exec.Command("sh", append(args, d.args...)...) //nolint:noctx // it outlives the tool
	cmd.Env = append(c.environment(), d.env...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	go func() { _ = cmd.Wait() }() // no zombie when the caller is a long test
	return replaceFile(c.path("pid", d.name), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// environment is what all processes of the cluster see: nothing of the caller's.
func (c *Cluster) environment() []string {
	return []string{"PATH=" + c.bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "OTEL_TRACES_EXPORTER=none"}
}

var errNotRunning = errors.New("not running")

// pid returns the process of a daemon, or errNotRunning. A number alone is not proof: it may be another
// process's by now, so the process has to be in our cgroup, and it has to run: what has ended stays in its cgroup until its parent collects
// it, which the first process of a container may do late or never.
func (c *Cluster) pid(name string) (int, error) {
	data, err := os.ReadFile(c.path("pid", name))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, errNotRunning)
	}
	pid, err := strconv.Atoi(string(data))
	if err != nil {
		return 0, fmt.Errorf("read the pid of %s: %w", name, err)
	}
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(cgroups), "0::"+cgroupRoot+"/") || isZombie(pid) {
		return 0, fmt.Errorf("%s: %w", name, errNotRunning)
	}
	return pid, nil
}

// stop ends a daemon at once, as a crash would, and waits until it is gone.
func (c *Cluster) stop(ctx context.Context, name string) error {
	pid, err := c.pid(name)
	if errors.Is(err, errNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return wait(ctx, 10*time.Second, "the end of "+name, func(context.Context) error {
		if _, err := c.pid(name); errors.Is(err, errNotRunning) {
			return nil
		}
		return errors.New("still there")
	})
}

// isZombie tells whether a process has ended and only waits to be collected.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}

// inControl is the way into the control plane's network namespace. Not "ip netns exec": that mounts another /sys
// in which there are no cgroups.
func inControl() []string { return []string{"nsenter", "--net=/run/netns/" + prefix + control} }

// inNode is the way into a node: its mounts, its host name, its network.
func (c *Cluster) inNode(i int) ([]string, error) {
	pid, err := c.pid(nodeName(i) + "-init")
	if err != nil {
		return nil, fmt.Errorf("%s is powered off: %w", nodeName(i), err)
	}
	return []string{"nsenter", "-t", strconv.Itoa(pid), "-m", "-u", "-n"}, nil
}

// InControl returns a command, not started, that runs inside the control plane's network: it reaches the API server,
// pods, Services and nodes, and nothing else. It ends with the cluster.
func (c *Cluster) InControl(ctx context.Context, args ...string) (*exec.Cmd, error) {
	return c.guest(ctx, inControl(), args)
}

// OnNode returns a command, not started, that runs as a process of a node. It ends with the node's power.
func (c *Cluster) OnNode(ctx context.Context, node string, args ...string) (*exec.Cmd, error) {
	i, err := c.index(node)
	if err != nil {
		return nil, err
	}
	enter, err := c.inNode(i)
	if err != nil {
		return nil, err
	}
	return c.guest(ctx, enter, args)
}

func (c *Cluster) guest(ctx context.Context, enter, args []string) (*exec.Cmd, error) {
	const cgroup = cgroupRoot + "/guests"
	dirs, err := cgroupDirs(cgroup)
	if err != nil {
		return nil, err
	}
	argv := slices.Concat([]string{"-c", joinAndRun, "guest", strings.Join(dirs, " ")}, enter, args)
	cmd := exec.CommandContext(ctx, "sh", argv...)
	cmd.Env = append(os.Environ(), "PATH="+c.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+c.InsideKubeconfig())
	cmd.WaitDelay = time.Second
	return cmd, nil
}
