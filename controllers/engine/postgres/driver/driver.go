// Package driver is PostgreSQL from inside its pod: it makes the data directory, converges the running server and reports it.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// Config of a driver. The zero value fits a pod.
type Config struct {
	// BinDir holds initdb, postgres and the rest. Empty: looked for on PATH and where images keep it.
	BinDir string
	// Directories of the pod; empty for those of engine's layout.
	DataDir, WALDir, RunDir, MemberTLSDir, ServerTLSDir string
	// Listen address and Port of the server; empty and 0 for every address and 5432.
	Listen string
	Port   int
	// OSUser is the name of this process's user, whom the server lets be its superuser over the socket. Empty: from passwd.
	OSUser string
	// BootstrapTimeout bounds one text of bootstrap SQL; 0 for an hour.
	BootstrapTimeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger
	// Credential runs the server's programs as another user and gives it their files. In a pod the agent is that user already;
	// tests run as root, which the server refuses.
	Credential *syscall.Credential
}

// Driver is PostgreSQL's engine.Driver.
type Driver struct {
	cfg     Config
	log     *slog.Logger
	bins    binaries
	history *Watch

	// work guards what Prepare, Become and Quiesce change: the contract calls one at a time, the lock makes a slip harmless.
	work          sync.Mutex
	epoch         int64 // highest that was obeyed
	role          engine.Role
	lock          *os.File
	good, refused map[string]string // files that the server took and did not take last
	trying        map[string]string // files of a start that was not seen to succeed
	recalled      bool              // what the volume keeps of these was read
	dirty         bool              // a file was written that the server may not have read
	quiet         bool              // Quiesce holds
	led           bool              // the data is of a primary that was, and was not compared with its successor's yet
	promoted      time.Time
	turned        time.Time // when this member last had nobody to follow: a change of hands is under way, or was just now
	kept          *pgx.Conn // for the next Become or Quiesce: a new session is a new process, and clients wait for it

	// state guards what Report reads beside them.
	state       sync.Mutex
	phase       string
	offline     *lookup
	readBy      string // startup process that has read the server's own log to its end
	replaying   string // startup process that had not, when offline was looked up
	upstream    string
	applied     string
	configFault string
	syncWanted  int
	streamed    bool
	left        *engine.Left
	handing     bool // a hand-over has begun
	turning     bool // hands are changing: others wait for a report, and for nothing in it that may wait

	// reporting guards what Report keeps from one time to the next.
	reporting  sync.Mutex
	conn       *pgx.Conn
	settingsAt time.Time
	runs       map[string]string
	pending    []string

	background sync.WaitGroup
	stop       context.CancelFunc
	alive      context.Context
}

var _ engine.Driver = (*Driver)(nil)

// New makes a driver. It fails if the server's programs are not in the image.
func New(cfg Config) (*Driver, error) {
	cfg = withDefaults(cfg)
	if cfg.OSUser == "" {
		u, err := user.LookupId(strconv.Itoa(os.Getuid()))
		if err != nil {
			return nil, fmt.Errorf("name of user %d: %w; the pod's passwd file must hold it", os.Getuid(), err)
		}
		cfg.OSUser = u.Username
	}
	bins, err := findBinaries(cfg.BinDir, dataMajor(filepath.Join(cfg.DataDir, dataName)))
	if err != nil {
		return nil, err
	}
	if data, image := dataMajor(filepath.Join(cfg.DataDir, dataName)), bins.major(); data > 0 && image > 0 && data != image {
		return nil, fmt.Errorf("the data on the volume is PostgreSQL %d's and the image holds PostgreSQL %d; set spec.image or spec.version to PostgreSQL %d", data, image, data)
	}
	alive, stop := context.WithCancel(context.Background())
	return &Driver{cfg: cfg, log: cfg.Logger, bins: bins, history: NewWatch(), alive: alive, stop: stop}, nil
}

func withDefaults(cfg Config) Config {
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&cfg.DataDir, engine.DataDir)
	fill(&cfg.WALDir, engine.WALDir)
	fill(&cfg.RunDir, engine.RunDir)
	fill(&cfg.MemberTLSDir, engine.MemberTLSDir)
	fill(&cfg.ServerTLSDir, engine.ServerTLSDir)
	fill(&cfg.Listen, "*")
	if cfg.Port == 0 {
		cfg.Port = postgres.Port
	}
	if cfg.BootstrapTimeout == 0 {
		cfg.BootstrapTimeout = time.Hour
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// Close ends what runs in the background and gives the data volume free. The server goes on.
func (d *Driver) Close() {
	d.stop()
	d.background.Wait()
	d.reporting.Lock()
	if d.conn != nil {
		ctx, done := context.WithTimeout(context.Background(), time.Second)
		_ = d.conn.Close(ctx) // it is let go of in any case
		done()
		d.conn = nil
	}
	d.reporting.Unlock()
	d.work.Lock()
	defer d.work.Unlock()
	d.forgetSession()
	if d.lock != nil {
		_ = d.lock.Close() // nothing was written to it
		d.lock = nil
	}
}

// Watch counts what the server's log tells; the agent feeds it by Watch.Pump.
func (d *Driver) Watch() *Watch { return d.history }

// Names on the data volume.
const (
	dataName   = "pgdata"
	newName    = "pgdata.new"
	oldName    = "pgdata.old"
	rewindName = "pgdata.rewinding" // exists while pg_rewind works: what it leaves behind half-way is of no use
	lockName   = ".plimsoll-lock"
)

func (d *Driver) data() string   { return filepath.Join(d.cfg.DataDir, dataName) }
func (d *Driver) conf() string   { return filepath.Join(d.cfg.RunDir, "postgres") }
func (d *Driver) tlsDir() string { return filepath.Join(d.cfg.RunDir, "postgres-tls") }
func (d *Driver) rewind() string { return filepath.Join(d.cfg.DataDir, rewindName) }
func (d *Driver) hasData() bool  { return exists(filepath.Join(d.data(), "PG_VERSION")) }
func (d *Driver) hasWALDir() bool {
	info, err := os.Stat(d.cfg.WALDir)
	return err == nil && info.IsDir()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hold takes the volume: a second pod on the same node that mounts it too would else start a second server on the same files.
func (d *Driver) hold() error {
	if d.lock != nil {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(d.cfg.DataDir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the data volume: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written to it
		if errors.Is(err, unix.EWOULDBLOCK) {
			return &Problem{Reason: VolumeInUse, Message: "another pod uses this data volume; it must end first"}
		}
		return fmt.Errorf("lock the data volume: %w", err)
	}
	d.lock = f
	return nil
}

// VolumeInUse is the reason of a volume that another pod of this instance still holds.
const VolumeInUse = "VolumeInUse"

// Problem is an error that a person should see: Reason in a word, Message with what to do.
type Problem struct{ Reason, Message string }

// Error of the problem.
func (p *Problem) Error() string { return p.Message }

// Explain reads reason and text for people out of an error of the driver.
func Explain(err error) (reason, text string, ok bool) {
	var p *Problem
	if !errors.As(err, &p) {
		return "", "", false
	}
	return p.Reason, p.Message, true
}

// Starting says that the error is that of a server that takes no connections yet: it starts, recovers, or is about to stop.
func Starting(err error) bool { return state(err) == cannotConnectNow }

// Unfit says whether the report is of a replica that cannot follow with the data that it has: stopped and prepared again, it can.
func Unfit(r engine.Report) bool {
	return r.Role == engine.Replica && (r.Reason == reasonLogRemoved || r.Reason == reasonForked)
}

func (d *Driver) setPhase(phase string) {
	d.state.Lock()
	defer d.state.Unlock()
	d.phase = phase
	d.offline = nil
}
