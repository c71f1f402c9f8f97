package main

import (
	"context"
	"fmt"
	"strconv"
	"syscall"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// fault is a verb that works on the running cluster with a fixed number of arguments.
func fault(name, args, help string, n int, f func(ctx context.Context, c *cluster.Cluster, args []string) error) command {
	return command{name, args, help, func(ctx context.Context, given []string) error {
		if len(given) != n {
			return errUsage
		}
		c, err := cluster.Open()
		if err != nil {
			return err
		}
		return f(ctx, c, given)
	}}
}

func faults() []command {
	type c = *cluster.Cluster
	type ctx = context.Context
	return []command{
		fault("load", "IMAGE NAME:TAG", "give the registry an image: an OCI or docker archive, or one of buildah's", 2, func(x ctx, c c, a []string) error { return c.Load(x, a[0], a[1]) }),
		fault("power-off", "NODE", "end a node and all its pods at one instant", 1, func(x ctx, c c, a []string) error { return c.PowerOff(x, a[0]) }),
		fault("power-on", "NODE", "start it again", 1, func(x ctx, c c, a []string) error { return c.PowerOn(x, a[0]) }),
		fault("partition", "PLACE", "cut a node, or \"control\", off from everybody", 1, func(x ctx, c c, a []string) error { return c.Partition(x, a[0]) }),
		fault("cut", "PLACE PLACE", "cut two places off from each other", 2, func(x ctx, c c, a []string) error { return c.Cut(x, a[0], a[1]) }),
		fault("cut-one-way", "FROM TO", "drop what goes from one place to another", 2, func(x ctx, c c, a []string) error { return c.CutOneWay(x, a[0], a[1]) }),
		fault("lose", "PLACE PERCENT", "drop a share of the packets from a place", 2, func(x ctx, c c, a []string) error {
			percent, err := strconv.Atoi(a[1])
			if err != nil {
				return errUsage
			}
			return c.Lose(x, a[0], percent)
		}),
		fault("heal", "", "end every cut and loss", 0, func(x ctx, c c, _ []string) error { return c.Heal(x) }),
		fault("freeze", "NAMESPACE POD", "stop every process of a pod where it is", 2, func(x ctx, c c, a []string) error { return c.FreezePod(x, a[0], a[1]) }),
		fault("thaw", "NAMESPACE POD", "let a frozen pod go on", 2, func(x ctx, c c, a []string) error { return c.ThawPod(x, a[0], a[1]) }),
		fault("processes", "NAMESPACE POD", "list the processes of a pod", 2, processes),
		fault("kill", "NAMESPACE POD MATCH", "kill -9 the oldest process with MATCH in its command line", 3, func(x ctx, c c, a []string) error {
			return c.KillProcess(x, a[0], a[1], a[2], syscall.SIGKILL)
		}),
		fault("slow", "NAMESPACE POD PERCENT", "give a pod a share of one processor (0: no limit)", 3, func(x ctx, c c, a []string) error {
			percent, err := strconv.Atoi(a[2])
			if err != nil {
				return errUsage
			}
			return c.LimitCPU(x, a[0], a[1], percent)
		}),
		fault("stop", "api|NODE", "stop the API server, or the kubelet of a node", 1, stop),
		fault("start", "api|NODE", "start it again", 1, start),
		fault("etcd-save", "", "copy all that the API server knows", 0, func(x ctx, c c, _ []string) error { return c.SaveEtcd(x) }),
		fault("etcd-restore", "AHEAD", "put it back, forget what happened since, and move versions on by so many (0: they go back)", 1, func(x ctx, c c, a []string) error {
			ahead, err := strconv.ParseUint(a[0], 10, 64)
			if err != nil {
				return errUsage
			}
			return c.RestoreEtcd(x, ahead)
		}),
		fault("volume-hang", "NAMESPACE CLAIM", "make every write to a volume wait", 2, func(x ctx, c c, a []string) error { return c.HangVolume(x, a[0], a[1]) }),
		fault("volume-thaw", "NAMESPACE CLAIM", "let it go on", 2, func(x ctx, c c, a []string) error { return c.ThawVolume(x, a[0], a[1]) }),
		fault("volume-fill", "NAMESPACE CLAIM", "take all room that a volume has left", 2, func(x ctx, c c, a []string) error { return c.FillVolume(x, a[0], a[1]) }),
		fault("volume-empty", "NAMESPACE CLAIM", "give it back", 2, func(x ctx, c c, a []string) error { return c.EmptyVolume(x, a[0], a[1]) }),
		fault("volume-slow", "NAMESPACE CLAIM BYTES/S", "limit writes to a volume (0: no limit)", 3, func(x ctx, c c, a []string) error {
			rate, err := strconv.ParseInt(a[2], 10, 64)
			if err != nil {
				return errUsage
			}
			return c.SlowVolume(x, a[0], a[1], rate)
		}),
		fault("volume-grow", "NAMESPACE CLAIM SIZE", "grow a volume while it is in use", 3, func(x ctx, c c, a []string) error { return c.GrowVolume(x, a[0], a[1], a[2]) }),
	}
}

func processes(ctx context.Context, c *cluster.Cluster, args []string) error {
	list, err := c.Processes(ctx, args[0], args[1])
	for _, p := range list {
		fmt.Println(p.PID, p.Command)
	}
	return err
}

func stop(ctx context.Context, c *cluster.Cluster, args []string) error {
	if args[0] == "api" {
		return c.StopAPIServer(ctx)
	}
	return c.StopKubelet(ctx, args[0])
}

func start(ctx context.Context, c *cluster.Cluster, args []string) error {
	if args[0] == "api" {
		return c.StartAPIServer(ctx)
	}
	return c.StartKubelet(ctx, args[0])
}
