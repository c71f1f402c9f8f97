package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

const (
	fastStop = syscall.SIGINT

	standbySignal  = "standby.signal"
	recoverySignal = "recovery.signal"
	autoConf       = "postgresql.auto.conf"
)

// Step is what Prepare would do.
type Step string

// Steps of Prepare. Rewind and Recopy discard data of this member: it must be no voter while they are done.
const (
	StepNone       Step = "none"
	StepInitialise Step = "initialise"
	StepCopy       Step = "copy"
	StepRewind     Step = "rewind"
	StepRecopy     Step = "recopy"
)

// Discards tells whether the step throws away data that this member acknowledged.
func (s Step) Discards() bool { return s == StepRewind || s == StepRecopy }

// Plan says what Prepare would do for the role, without doing it.
func (d *Driver) Plan(ctx context.Context, r engine.Role) (Step, error) {
	d.work.Lock()
	defer d.work.Unlock()
	if r.Kind == engine.Stopped {
		return StepNone, nil
	}
	if err := d.ready(r); err != nil {
		return StepNone, err
	}
	step, _, err := d.plan(ctx, r)
	return step, err
}

// Discards says whether Prepare for the role would throw away data that this member acknowledged: it must be no voter then.
func (d *Driver) Discards(ctx context.Context, r engine.Role) (bool, error) {
	step, err := d.Plan(ctx, r)
	return step.Discards(), err
}

// Prepare makes the data directory fit for the role. Whatever it makes grows beside the data directory and takes its place by one
// rename, so that its end at any instant leaves a whole one or none.
func (d *Driver) Prepare(ctx context.Context, r engine.Role) error {
	d.work.Lock()
	defer d.work.Unlock()
	if r.Kind == engine.Stopped {
		return nil
	}
	if r.Epoch < d.epoch {
		return fmt.Errorf("prepare for epoch %d: epoch %d was obeyed already", r.Epoch, d.epoch)
	}
	defer d.setPhase("")
	d.forgetSession() // of a server that is gone
	if err := d.ready(r); err != nil {
		return err
	}
	step, from, err := d.plan(ctx, r)
	if err != nil {
		return err
	}
	switch step {
	case StepInitialise:
		err = d.initialise(ctx, r.Database.Version)
	case StepCopy, StepRecopy:
		err = d.copy(ctx, r)
	case StepRewind:
		err = d.rewindOrCopy(ctx, r, from)
	case StepNone:
	}
	if err != nil {
		return err
	}
	if err := d.dropPlaceholders(ctx); err != nil {
		return err
	}
	if err := d.mark(ctx, r); err != nil {
		return err
	}
	if r.Upstream != "" && step == StepNone && from.system == "" {
		// Nobody to compare with: it starts as a replica of nobody, and Become compares before it connects.
		r.Upstream = ""
	}
	usable := d.try(d.usable(r))
	raised, err := d.floored(ctx, usable)
	if err != nil {
		return err
	}
	if _, err := d.install(raised, false); err != nil {
		return err
	}
	d.history.forget()
	d.role, d.dirty, d.quiet = usable, false, false
	d.state.Lock()
	d.streamed, d.upstream = false, r.Upstream
	d.state.Unlock()
	return nil
}

// ready takes the volume, clears what an earlier end left, and installs configuration and certificates.
func (d *Driver) ready(r engine.Role) error {
	if err := d.hold(); err != nil {
		return err
	}
	d.recall()
	if err := d.serverGone(); err != nil {
		return err
	}
	if err := d.sweep(); err != nil {
		return err
	}
	_, err := d.install(d.usable(r), false)
	return err
}

// plan decides, and gives what the upstream said of itself.
func (d *Driver) plan(ctx context.Context, r engine.Role) (Step, source, error) {
	if exists(d.rewind()) && r.Kind == engine.Primary {
		return StepNone, source{}, &Problem{Reason: "RewindInterrupted", Message: "the data was left half-way by an interrupted rewind and cannot lead; it is copied anew once there is a primary"}
	}
	if r.Kind == engine.Primary {
		if d.hasData() {
			return StepNone, source{}, nil
		}
		if r.Initialise {
			return StepInitialise, source{}, nil
		}
		return StepNone, source{}, &Problem{Reason: "NoData", Message: "this instance has no data and may not begin a new database; it can only copy a primary's"}
	}
	if !d.hasData() {
		d.tellLeft(engine.Left{}, false)
		return StepCopy, source{}, nil
	}
	if exists(d.rewind()) {
		return StepRecopy, source{}, nil
	}
	if r.Upstream == "" {
		return StepNone, source{}, nil
	}
	return d.planReplica(ctx, r)
}

func (d *Driver) planReplica(ctx context.Context, r engine.Role) (Step, source, error) {
	from, err := d.ask(ctx, r)
	if err != nil {
		// One that was a replica already may start and read on until its upstream is back; one that led must not come up beside it.
		if exists(filepath.Join(d.data(), standbySignal)) {
			d.log.Warn("upstream does not answer; starting as it is", "upstream", r.Upstream, "error", err.Error())
			return StepNone, source{}, nil
		}
		return StepNone, source{}, err
	}
	here, err := d.localPlace(ctx)
	if errors.Is(err, errNoLog) {
		d.log.Warn("the data is damaged; it is copied anew", "error", err.Error())
		d.tellLeft(engine.Left{}, false)
		return d.planDamaged(ctx, r, from)
	}
	if err != nil {
		return StepNone, source{}, err
	}
	kin := relate(here, from)
	if !exists(filepath.Join(d.data(), standbySignal)) {
		d.led = true
	}
	d.leaves(ctx, here, from, kin)
	if kin != follows && from.standby {
		return StepNone, source{}, fmt.Errorf("compare with %s: it is being promoted, and where its timeline begins is not known yet", r.Upstream)
	}
	d.log.Info("compared with the upstream", "upstream", r.Upstream, "timeline", here.timeline, "end", here.end.String(), "upstreamTimeline", from.timeline, "upstreamEnd", from.end.String(), "relation", int(kin))
	switch kin {
	case follows:
		if r.Anew {
			return StepRecopy, from, nil
		}
		return StepNone, from, nil
	case forked:
		return StepRewind, from, nil
	case foreign:
		return StepNone, from, foreignData(r, here.system, from.system)
	case behind, ahead:
	}
	return StepRecopy, from, nil
}

// planDamaged copies anew, unless the data is another database's: that is never overwritten.
func (d *Driver) planDamaged(ctx context.Context, r engine.Role, from source) (Step, source, error) {
	if from.standby {
		return StepNone, source{}, fmt.Errorf("copy %s anew: it is being promoted", r.Upstream)
	}
	c, err := d.readControl(ctx)
	if err != nil {
		return StepNone, from, err
	}
	if c.system != from.system {
		return StepNone, from, foreignData(r, c.system, from.system)
	}
	return StepRecopy, from, nil
}

func foreignData(r engine.Role, here, there string) error {
	return &Problem{Reason: "ForeignData", Message: fmt.Sprintf(
		"the volume holds another database (system %s, the primary's is %s); delete the volume claim of %s if nobody needs it", here, there, r.Member)}
}

func (d *Driver) ask(ctx context.Context, r engine.Role) (source, error) {
	up, err := d.dial(ctx, r)
	if err != nil {
		return source{}, err
	}
	defer up.close()
	return up.source(ctx)
}

// serverGone refuses to touch the data of a running server, and removes the lock files of a dead one, of its data and of its socket: in
// a new container their number may be anybody's.
func (d *Driver) serverGone() error {
	path := filepath.Join(d.data(), "postmaster.pid")
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for a running server: %w", err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	if pid, err := strconv.Atoi(strings.TrimSpace(first)); err == nil && d.serves(pid) {
		return fmt.Errorf("prepare the data directory: the server still runs as process %d", pid)
	}
	for _, lock := range []string{path, filepath.Join(d.cfg.RunDir, fmt.Sprintf(".s.PGSQL.%d.lock", d.cfg.Port))} {
		if err := os.Remove(lock); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the lock file of a dead server: %w", err)
		}
	}
	return nil
}

// serves tells whether the process is a server on this data directory: a postmaster works in it.
func (d *Driver) serves(pid int) bool {
	at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	real, err := filepath.EvalSymlinks(d.data())
	return err == nil && at == real
}

// sweep ends what an interrupted Prepare began.
func (d *Driver) sweep() error {
	at := func(name string) string { return filepath.Join(d.cfg.DataDir, name) }
	if !exists(d.data()) && exists(at(oldName)) {
		if err := os.Rename(at(oldName), d.data()); err != nil {
			return fmt.Errorf("put the data directory back: %w", err)
		}
	}
	for _, name := range []string{newName, oldName} {
		if err := os.RemoveAll(at(name)); err != nil {
			return fmt.Errorf("remove what an interrupted copy left: %w", err)
		}
	}
	if err := d.sweepWAL(); err != nil {
		return err
	}
	if !exists(d.data()) {
		return nil
	}
	// A volume's group rights are opened at mount by some platforms; the server refuses such a directory.
	if err := os.Chmod(d.data(), 0o700); err != nil {
		return fmt.Errorf("close the data directory to others: %w", err)
	}
	return nil
}

// sweepWAL removes log directories that no data directory points to.
func (d *Driver) sweepWAL() error {
	if !d.hasWALDir() {
		return nil
	}
	used, _ := os.Readlink(filepath.Join(d.data(), "pg_wal")) // empty without one: then all are left over
	found, err := filepath.Glob(filepath.Join(d.cfg.WALDir, walPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look through the log's volume: %w", err)
	}
	for _, path := range found {
		if path == used {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what an interrupted copy left: %w", err)
		}
	}
	return nil
}

// mark makes the directory start as what the role is: everything but a primary that goes on with its own timeline starts in
// recovery. Configuration that the data brought along is cut off.
func (d *Driver) mark(ctx context.Context, r engine.Role) error {
	if err := d.neutral(ctx, d.data()); err != nil {
		return err
	}
	standby := r.Kind == engine.Replica
	if r.Kind == engine.Primary && r.Timeline > 0 && !exists(filepath.Join(d.data(), standbySignal)) {
		c, err := d.readControl(ctx)
		if err != nil {
			return err
		}
		// One that led before and won again leads on the timeline that was reserved for it: it starts as a replica of nobody.
		standby = uint64(c.timeline) < r.Timeline
	}
	if !standby {
		return nil
	}
	if r.Kind == engine.Replica && !exists(filepath.Join(d.data(), standbySignal)) {
		d.led = true
	}
	_, err := d.update(filepath.Join(d.data(), standbySignal), nil)
	if err != nil {
		return err
	}
	return syncDir(d.data())
}

// neutral cuts off configuration inside of a data directory: postgresql.conf is there for pg_rewind, which starts a server of its
// own, and postgresql.auto.conf would come after ours. That server recovers from a crash only if it has room for the transactions
// that were prepared, and must not take huge pages that the pod may not use.
func (d *Driver) neutral(ctx context.Context, dir string) error {
	said, err := d.run(ctx, nil, "pg_controldata", "-D", dir)
	if err != nil {
		return fmt.Errorf("read the control file: %w", err)
	}
	for name, text := range map[string]string{
		mainFile: "# Plimsoll keeps the configuration outside of the data directory.\nlisten_addresses = ''\nlc_messages = 'C'\nhuge_pages = off\n" +
			fmt.Sprintf("max_prepared_transactions = %d\n", floors(said)["max_prepared_transactions"]),
		autoConf: "# Plimsoll keeps the configuration outside of the data directory.\n",
	} {
		if _, err := d.update(filepath.Join(dir, name), []byte(text)); err != nil {
			return err
		}
	}
	for _, name := range []string{recoverySignal} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("mark the data directory: %w", err)
		}
	}
	return nil
}

// initialise makes a new, empty database. Anyone who may use the socket still has to be mapped to the superuser, and over the
// network nobody is, until Become gives accounts passwords.
func (d *Driver) initialise(ctx context.Context, version string) error {
	d.setPhase("initialising")
	wanted, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(wanted)
	if has := d.bins.major(); err == nil && has > 0 && has != major {
		return &Problem{Reason: "WrongVersion", Message: fmt.Sprintf("spec.version asks for PostgreSQL %d and the image holds PostgreSQL %d: correct one of them", major, has)}
	}
	for _, locale := range []string{"C.UTF-8", "en_US.utf8", "C"} {
		if err = d.initdb(ctx, locale); err == nil {
			return d.adopt()
		}
		if !strings.Contains(err.Error(), "locale") {
			return fmt.Errorf("initialise: %w", err)
		}
		d.log.Info("locale is not in the image; trying the next", "locale", locale)
	}
	return fmt.Errorf("initialise: %w", err)
}

func (d *Driver) initdb(ctx context.Context, locale string) error {
	args := []string{
		"-D", filepath.Join(d.cfg.DataDir, newName), "-U", postgres.Superuser, "--auth-local=peer", "--auth-host=scram-sha-256",
		"--data-checksums", "-E", "UTF8", "--locale=" + locale, "--text-search-config=simple",
	}
	if d.bins.major() >= 16 {
		args = append(args, "-c", "huge_pages=off") // SIGBUS where the node has huge pages and the pod may not use them
	}
	if d.hasWALDir() {
		args = append(args, "--waldir="+d.newWALDir())
	}
	if err := d.sweep(); err != nil {
		return err
	}
	_, err := d.run(ctx, nil, "initdb", args...)
	return err
}
