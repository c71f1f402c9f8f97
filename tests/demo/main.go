// Command demo shows Plimsoll at work from one command: what `make demo` and `make demo-down` call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = "usage: demo up|down [--cluster local|current] [--image IMAGE] [--namespace NAMESPACE]"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintln(os.Stderr, "\nstopped. `make demo` goes on from here; `make demo-down` takes away what is there.")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "\nerror:", err)
		os.Exit(1)
	}
}

// options of the command line.
type options struct {
	cluster, image, namespace string
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&o.cluster, "cluster", "local", "local, or current: the cluster of the current kubeconfig")
	flags.StringVar(&o.image, "image", "", "the operator's image, for --cluster current")
	flags.StringVar(&o.namespace, "namespace", "plimsoll-system", "the operator's namespace")
	if err := flags.Parse(args[1:]); err != nil {
		return errors.New(usage)
	}
	d, err := newDemo(o)
	if err != nil {
		return err
	}
	defer d.log.Close()
	switch args[0] {
	case "up":
		ctx, cancel := context.WithTimeout(ctx, 90*time.Minute)
		defer cancel()
		return d.up(ctx)
	case "down":
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		return d.down(ctx)
	default:
		return errors.New(usage)
	}
}
