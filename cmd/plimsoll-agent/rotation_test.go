package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

// rotates changes the authority as the manager does: both are trusted, then the new one signs, then the old one goes. Streams and
// sessions live on; then new ones come by the new authority alone.
func (d *database) rotates(t *testing.T, w *writer) {
	lead, _ := d.roles(t)
	streams := d.streams(t, lead)
	old, next := d.ca, authority.New(t)
	both := slices.Concat(old.PEM, next.PEM)
	for _, phase := range []struct {
		name   string
		signer *authority.Authority
		trust  []byte
	}{
		{"both are trusted", old, both},
		{"the new one signs", next, both},
		{"the old one is gone", next, next.PEM},
	} {
		trusting := func(c client.Credentials) client.Credentials { c.CA = phase.trust; return c }
		server := trusting(d.leaf(phase.signer))
		want := map[string]string{}
		for _, m := range d.members {
			own := trusting(m.leaf(phase.signer))
			authority.Mount(t, m.pod.Agent.MemberTLSDir, own)
			authority.Mount(t, m.pod.Agent.ServerTLSDir, server)
			want[m.name] = engine.SecretsHash(engine.TLSFiles{Certificate: own.Cert, Trusted: own.CA}, engine.TLSFiles{Certificate: server.Cert, Trusted: server.CA})
		}
		d.credentials.Store(new(trusting(phase.signer.Leaf(t, uid, client.ManagerName))))
		took := d.until("all have taken it: "+phase.name, 90*time.Second, func() error {
			got := map[string]string{}
			for _, m := range d.members {
				r, err := m.report()
				if err != nil {
					return err
				}
				got[m.name] = r.SecretsHash
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("hashes (-want +got):\n%s", diff)
			}
			return d.whole()
		})
		t.Logf("%s: taken after %s", phase.name, took.Round(time.Millisecond))
	}
	d.ca = next
	if diff := cmp.Diff(streams, d.streams(t, lead)); diff != "" {
		t.Errorf("streams (-before +after):\n%s", diff)
	}
	if gap, _ := w.longest(); gap > still {
		t.Errorf("writes stood still for %s", gap)
	}
	d.breaks(t, lead)
	d.until("the streams are new", 30*time.Second, func() error {
		if now := d.streams(t, lead); len(now) != len(streams) || cmp.Equal(streams, now) {
			return fmt.Errorf("streams are %q, were %q", now, streams)
		}
		return d.whole()
	})
}

// streams are the leader's walsenders: whose, and which process.
func (d *database) streams(t *testing.T, lead *memberPod) []string {
	t.Helper()
	text := must(lead.ask("SELECT application_name || ' ' || pid FROM pg_stat_replication WHERE state = 'streaming' ORDER BY 1"))(t)
	return strings.Fields(text)
}

// breaks every stream and every session once.
func (d *database) breaks(t *testing.T, lead *memberPod) {
	t.Helper()
	must(lead.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type IN ('walsender', 'client backend')"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var c *pgx.Conn
	d.until("a new session comes by the new authority", 10*time.Second, func() (err error) {
		c, err = d.connect(ctx, lead.pod.Address)
		return err
	})
	_ = c.Close(ctx)
}
