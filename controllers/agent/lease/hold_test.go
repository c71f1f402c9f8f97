package lease

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestHold makes each member stand still and goes on with another runner, as another program would: nobody else takes over, no epoch is
// used, and the server is never told anything else.
func TestHold(t *testing.T) {
	dir, tm, store, actors := three(t)
	_, epoch := store.route()

	// While it stands still it answers nobody, and as nobody exchanges it, it goes on.
	var release func()
	eventually(t, "a quiet moment of b", func() bool {
		var err error
		_, release, err = actors["b"].runner.Hold(t.Context())
		return err == nil || !errors.Is(err, ErrBusy)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	_, err := actors["b"].runner.Ask(ctx, Request{Kind: KindStatus, Database: "uid", From: "c", Seq: 1})
	cancel()
	if err == nil {
		t.Error("it answered while it stood still")
	}
	release()
	if _, err := actors["b"].runner.Ask(t.Context(), Request{Kind: KindStatus, Database: "uid", From: "c", Seq: 2}); err != nil {
		t.Errorf("after the release: %v", err)
	}

	for _, name := range []string{"b", "c", "a"} {
		old := actors[name]
		var kept Kept
		eventually(t, "a quiet moment of "+name, func() bool {
			var err error
			kept, _, err = old.runner.Hold(t.Context())
			return err == nil
		})
		was := old.server.role()
		next := begin(t, name, dir, tm, store, old.server, &kept)
		old.cancel()                       // stands still to its end, and has its server stopped at that: that is not the next one's
		time.Sleep(700 * time.Millisecond) // more than two grants
		if got := next.server.role(); got != was {
			t.Errorf("%s was %s and is %s", name, was, got)
		}
		if got := next.runner.Status().Decision; got.Serial < kept.Decided.Serial {
			t.Errorf("%s: its decisions went back from %d to %d", name, kept.Decided.Serial, got.Serial)
		}
		actors[name] = next
	}
	if to, now := store.route(); to != "a" || now != epoch {
		t.Errorf("%s leads at epoch %d; want a at %d", to, now, epoch)
	}
	if got := actors["a"].runner.Status(); got.Stage != string(leading) || len(got.Grants) != 3 {
		t.Errorf("the leader is %s with the grants %v", got.Stage, got.Grants)
	}

	// A leader that hands over is not quiet.
	actors["a"].runner.Leave()
	eventually(t, "not quiet", func() bool {
		_, release, err := actors["a"].runner.Hold(t.Context())
		if err == nil {
			release()
		}
		return errors.Is(err, ErrBusy)
	})
}
