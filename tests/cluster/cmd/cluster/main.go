// Command cluster runs the isolated Kubernetes of the tests on this machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// command is one verb of the command line.
type command struct {
	name, args, help string
	run              func(ctx context.Context, args []string) error
}

func commands() []command {
	return append([]command{
		{"build", "[--api]", "build the pinned binaries into the cache (--api: only what cluster.StartAPI needs)", build},
		{"up", "[--nodes 3]", "start the cluster, building and installing what is missing", up},
		{"down", "[--fresh|--purge]", "end it (--fresh: forget etcd and disks; --purge: forget all but binaries and images)", down},
		{"images", "", "make the database images (postgres:15.18, postgres:15.20, redis:7.0) and give them to the cluster", func(ctx context.Context, _ []string) error {
			return cluster.Images(ctx, say)
		}},
		{"exec", "NODE -- COMMAND...", "run a command as a process of a node", execOnNode},
		{"in-control", "-- COMMAND...", "run a command inside the control plane's network", execInControl},
	}, faults()...)
}

var errUsage = errors.New("usage")

func main() {
	// A signal must not leave half a cluster behind unseen: every step below stops at the end of ctx and says where.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errUsage):
		usage()
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:])
		}
	}
	return errUsage
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: cluster COMMAND")
	for _, c := range commands() {
		fmt.Fprintf(os.Stderr, "  %-32s %s\n", c.name+" "+c.args, c.help)
	}
}

func build(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	api := flags.Bool("api", false, "what cluster.StartAPI and the tests beside it need, in place of what a cluster needs")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	return cluster.Build(ctx, cluster.BuildOptions{API: *api, Out: os.Stdout})
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func up(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	nodes := flags.Int("nodes", 3, "number of nodes")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	if err := cluster.Fits(); err != nil {
		return err
	}
	if err := build(ctx, nil); err != nil { // quick when nothing has changed
		return err
	}
	c, err := cluster.Up(ctx, cluster.UpOptions{Nodes: *nodes, Say: say})
	if err != nil {
		return err
	}
	kubectl, err := cluster.Binary("kubectl")
	if err != nil {
		return err
	}
	say("export KUBECONFIG=%s\nkubectl: %s\nregistry: %s", c.Kubeconfig(), kubectl, c.RegistryAddress())
	return nil
}

func down(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("down", flag.ContinueOnError)
	fresh := flags.Bool("fresh", false, "forget etcd and the disks of the nodes")
	purge := flags.Bool("purge", false, "forget everything but binaries and images")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	keep := cluster.KeepAll
	switch {
	case *purge:
		keep = cluster.KeepNothing
	case *fresh:
		keep = cluster.KeepImages
	}
	return cluster.Down(ctx, keep, say)
}

func execOnNode(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	c, err := cluster.Open()
	if err != nil {
		return err
	}
	cmd, err := c.OnNode(ctx, args[0], afterDashes(args[1:])...)
	if err != nil {
		return err
	}
	return attached(cmd)
}

func execInControl(ctx context.Context, args []string) error {
	if len(args) < 1 {
		return errUsage
	}
	c, err := cluster.Open()
	if err != nil {
		return err
	}
	cmd, err := c.InControl(ctx, afterDashes(args)...)
	if err != nil {
		return err
	}
	return attached(cmd)
}

func afterDashes(args []string) []string {
	if args[0] == "--" {
		return args[1:]
	}
	return args
}

// attached runs a command on the caller's terminal and ends with its exit code.
func attached(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	return err
}
