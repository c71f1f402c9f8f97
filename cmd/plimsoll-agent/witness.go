package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// witness is the only process of its pod.
func witness(getenv func(string) string, out io.Writer) error {
	cfg := agent.Config{
		Namespace: getenv(engine.EnvNamespace), Database: getenv(engine.EnvDatabase), UID: getenv(engine.EnvUID),
		Instance: getenv(engine.EnvInstance), Address: getenv(engine.EnvAddress), Version: version, StateDir: engine.WitnessDir,
	}
	api, err := kube.InCluster(kube.ServiceAccount, getenv, "plimsoll-witness/"+version)
	if err != nil {
		return err
	}
	// It reads the Lease; it never leads, so it never writes one, nor routes.
	store := lease.NewKubeStore(api, cfg.Namespace, cfg.Database, cfg.Database+"-rw", lease.Endpoint{Pod: cfg.Instance})
	return vote(cfg, readOnly{store}, out)
}

// vote runs a witness until the process is asked to end.
func vote(cfg agent.Config, store lease.Store, out io.Writer) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	log := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelInfo})).With("logger", "witness")
	w, err := agent.NewWitness(cfg, store, lease.BootClock{}, log)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return w.Run(ctx, onTerm(ctx, signals))
}

// readOnly is a store that nothing is written to.
type readOnly struct{ store lease.Store }

func (r readOnly) Read(ctx context.Context) (lease.Seen, error) { return r.store.Read(ctx) }

var errWrites = errors.New("a witness writes neither Lease nor EndpointSlice")

func (readOnly) Swap(context.Context, string, lease.Record) (string, error) { return "", errWrites }

func (readOnly) Route(context.Context, uint64) error { return errWrites }
