package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/names"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/process"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres/driver"
)

// The agent shares the container's memory with the database: the collector works harder and gives back early.
const (
	memoryLimit = 18 << 20
	gcPercent   = 40
)

// options are the parts of an agent that a test replaces.
type options struct {
	agent  agent.Config
	driver driver.Config
	store  lease.Store
	out    io.Writer
}

// run is the pod's first process.
func run(getenv func(string) string, out io.Writer) error {
	cfg := agent.Config{
		Namespace: getenv(engine.EnvNamespace), Database: getenv(engine.EnvDatabase), UID: getenv(engine.EnvUID),
		Instance: getenv(engine.EnvInstance), Version: version,
	}
	if name := getenv(engine.EnvEngine); name != string(v1.EnginePostgres) {
		return fmt.Errorf("environment variable %s is %q; this agent knows %s", engine.EnvEngine, name, v1.EnginePostgres)
	}
	api, err := kube.InCluster(kube.ServiceAccount, getenv, "plimsoll-agent/"+version)
	if err != nil {
		return err
	}
	endpoint := lease.Endpoint{Address: getenv(engine.EnvAddress), Node: getenv(engine.EnvNode), Pod: cfg.Instance}
	if endpoint.Address == "" {
		return fmt.Errorf("environment variable %s is empty: clients could not be sent here", engine.EnvAddress)
	}
	cfg.Address = endpoint.Address
	store := lease.NewKubeStore(api, cfg.Namespace, cfg.Database, cfg.Database+"-rw", endpoint)
	return serve(options{agent: cfg, store: store, out: out})
}

// serve runs the agent beside the reaper, which needs the main thread.
func serve(o options) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT) // first of all: a first process does not hear of what it has not asked for
	kept, err := agent.Inherit(lease.BootClock{})
	if err != nil {
		return err // the container starts again, as after any end of its first process
	}
	table, err := process.NewTable()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(o.out, &slog.HandlerOptions{Level: slog.LevelInfo})).With("logger", "agent")
	o.driver.Logger = log
	if o.driver.OSUser == "" {
		o.driver.OSUser = userOf(os.Getuid())
	}
	d, err := driver.New(o.driver)
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leave := onTerm(ctx, signals)
	if kept == nil {
		if err := own(d, leave, volumePatience, log); err != nil {
			return err // the kubelet starts the container again, and shows these words meanwhile
		}
	}
	a, err := agent.New(agent.Parts{
		Config: o.agent, Engine: postgresEngine(d), Table: table, Store: o.store, Clock: lease.BootClock{}, Kept: kept, Names: names.New(), Out: o.out, Log: log,
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- a.Run(ctx, leave)
	}()
	if err := table.Reap(ctx); err != nil {
		return err
	}
	return <-ended
}

// volumePatience is how long an agent waits for its volume in one go: an earlier pod of the same instance, on the same node, ends sooner.
const volumePatience = 30 * time.Second

// own takes the data volume before anything that it holds is read. What an earlier pod of this instance promised is kept there, and two
// that read one promise would give it twice: after a pod was deleted by force, or came back from a backup of etcd, both run for a while.
func own(d *driver.Driver, leave <-chan struct{}, patience time.Duration, log *slog.Logger) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for began, told := time.Now(), false; ; {
		err := d.Adopt(nil)
		reason, words, known := driver.Explain(err)
		switch {
		case err == nil:
			return nil
		case !known || reason != driver.VolumeInUse:
			log.Warn("the data volume cannot be locked", "error", err.Error()) // a server will not start on it, and says why
			return nil
		case time.Since(began) > patience:
			return fmt.Errorf("%s: %w", reason, err)
		case !told:
			log.Warn("waiting for the data volume", "why", words)
			told = true
		}
		select {
		case <-leave:
			return fmt.Errorf("told to end: %w", err)
		case <-tick.C:
		}
	}
}

// onTerm is closed at the first request to end; the kubelet sends one, and kills after the pod's grace.
func onTerm(ctx context.Context, signals chan os.Signal) <-chan struct{} {
	leave := make(chan struct{})
	go func() {
		defer signal.Stop(signals)
		select {
		case <-ctx.Done():
		case <-signals:
			close(leave)
		}
	}()
	return leave
}

// userOf names the user. One that has no entry still can be mapped, by its number.
func userOf(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return strconv.Itoa(uid)
	}
	return u.Username
}

// postgresEngine tells the agent what PostgreSQL's driver can do.
func postgresEngine(d *driver.Driver) agent.Engine {
	return agent.Engine{
		Driver:     d,
		Held:       d.Held,
		Adopt:      d.Adopt,
		Checkpoint: d.Checkpoint,
		Greet:      d.Greet,
		Discards: func(ctx context.Context, r engine.Role) (bool, error) {
			s, err := d.Plan(ctx, r)
			return s.Discards(), err
		},
		Unfit:    driver.Unfit,
		Explain:  driver.Explain,
		Starting: driver.Starting,
		Pump: func(ctx context.Context, from io.Reader, emit func(agent.Entry)) error {
			return d.Watch().Pump(ctx, from, func(r driver.Record) { emit(entry(r)) })
		},
	}
}

func entry(r driver.Record) agent.Entry {
	e := agent.Entry{Time: r.Time, Level: r.Level, Message: r.Message, Cut: r.Cut}
	e.Fields = [][2]string{
		{"sqlstate", r.SQLState}, {"backend", r.Backend}, {"host", r.Host}, {"user", r.User}, {"database", r.Database},
	}
	if r.PID != 0 {
		e.Fields = append(e.Fields, [2]string{"pid", strconv.Itoa(r.PID)})
	}
	for _, name := range []string{"DETAIL", "HINT", "CONTEXT", "STATEMENT", "QUERY", "LOCATION"} {
		e.Fields = append(e.Fields, [2]string{name, r.Details[name]})
	}
	return e
}
