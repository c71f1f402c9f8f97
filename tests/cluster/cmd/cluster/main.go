// Command cluster runs the isolated Kubernetes of the tests on this machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
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
	return []command{
		{"build", "[--api]", "build the pinned binaries into the cache (--api: only what cluster.StartAPI needs)", build},
	}
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
	api := flags.Bool("api", false, "only what cluster.StartAPI needs")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	return cluster.Build(ctx, cluster.BuildOptions{API: *api, Out: os.Stdout})
}
