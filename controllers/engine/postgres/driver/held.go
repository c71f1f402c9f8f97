package driver

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// ownLogRead is true once a standby has read its own log to the end. Until then it has replayed less than lies on its disk, and what
// it was sent before it ended is not known to it: it shows no position of receipt at all. The startup process waits by these names at the
// end of the log alone, in all releases since 13.
const ownLogRead = "(pg_catalog.pg_last_wal_receive_lsn() IS NOT NULL OR EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE backend_type = 'startup' AND wait_event IN ('RecoveryRetrieveRetryInterval', 'RecoveryWalStream')))"

// startupProcess names the process that replays: after a crash another one begins with the server's own log again.
const startupProcess = "coalesce((SELECT pid::text || ' ' || backend_start::text FROM pg_catalog.pg_stat_activity WHERE backend_type = 'startup'), '')"

// patienceWithLog bounds the wait for the end of the log on disk; the search goes on without who asked.
const patienceWithLog = time.Second

// held is what a running standby has on its disk: what the server shows, once it has read its own log, and before that what its files
// say, because commits that it acknowledged may lie in what it has not replayed. Nothing is written to them meanwhile: it receives
// only after it has read all.
func (d *Driver) held(ctx context.Context, startup string, read bool, shown engine.Position) (engine.Position, error) {
	d.state.Lock()
	if read {
		d.readBy = startup
	}
	if d.readBy != "" && d.readBy == startup { // between two waits it waits for nothing, and has still read all
		d.offline = nil
		d.state.Unlock()
		return shown, nil
	}
	if d.replaying != startup {
		d.replaying, d.offline = startup, nil
	}
	d.state.Unlock()
	ctx, done := context.WithTimeout(ctx, patienceWithLog)
	defer done()
	at, err := d.offlinePosition(ctx)
	if err != nil {
		return engine.Position{}, err
	}
	if shown.Timeline > at.Timeline || shown.Timeline == at.Timeline && shown.Bytes > at.Bytes {
		return shown, nil
	}
	return at, nil
}

// forgetReplaying: what was found while a server replayed is no word on one that has ended since.
func (d *Driver) forgetReplaying() {
	d.state.Lock()
	defer d.state.Unlock()
	if d.replaying != "" {
		d.replaying, d.offline = "", nil
	}
}
