package journal

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// divided is 22012, a division by zero.
const divided event.State = 2*36*36*36*36 + 2*36*36*36 + 36 + 2

func origin() Origin {
	return Origin{
		Instance: aggregate.Instance{Namespace: "shop", Database: "orders", Name: "orders-1"}, Pod: "0f3a9d1e", Container: "1a2b", Address: "10.0.0.9", Port: 5432, Node: "n1",
	}
}

// slow and failed are entries with everything.
func slow() Entry {
	return Entry{
		Kind: event.Slow, End: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC), Latency: 1500 * time.Millisecond, Queue: 250 * time.Millisecond, Service: time.Second,
		Transfer: 250 * time.Millisecond, Origin: origin(), Role: "primary", Session: event.Session{User: "ada", Database: "books"},
		Query: "00000000000000ab", Text: "SELECT a FROM t WHERE b = ?", Rows: 3, BytesIn: 40, BytesOut: 90, Client: netip.MustParseAddrPort("10.0.0.7:40000"),
	}
}

func failed() Entry {
	e := slow()
	e.Kind, e.State, e.Rows, e.Local, e.Client = event.Failed, divided, 0, true, netip.AddrPort{}
	e.Text, e.Literal, e.Cut, e.Nth = `SELECT 1/0, '<"ä">'`, true, true, 1
	return e
}

func TestEachEntryIsALineOfJSON(t *testing.T) {
	whose := `"service.namespace":"shop","service.name":"orders","service.instance.id":"orders-1","k8s.namespace.name":"shop","k8s.pod.name":"orders-1",` +
		`"k8s.pod.uid":"0f3a9d1e","k8s.node.name":"n1","container.id":"1a2b","server.address":"10.0.0.9","server.port":5432,`
	times := `"plimsoll.statement.begin":"2026-01-02T03:04:03.5000006Z","plimsoll.statement.duration":1.5,"plimsoll.statement.queue":0.25,` +
		`"plimsoll.statement.service":1,"plimsoll.statement.transfer":0.25,`
	for sentence, row := range map[string]struct {
		entry Entry
		want  string
	}{
		"a slow one": {slow(), `{"time":"2026-01-02T03:04:05.0000006Z","severity":"WARN","event":"plimsoll.statement.slow","message":"slow statement",` + whose +
			`"db.system.name":"postgresql","db.namespace":"books","user.name":"ada","db.query.text":"SELECT a FROM t WHERE b = ?","client.address":"10.0.0.7",` +
			`"client.port":40000,"network.transport":"tcp","plimsoll.role":"primary","plimsoll.query.id":"00000000000000ab",` + times +
			`"plimsoll.statement.rows":3,"plimsoll.statement.received":40,"plimsoll.statement.sent":90}`},
		"a failed one, with its literals": {failed(), `{"time":"2026-01-02T03:04:05.0000006Z","severity":"ERROR","event":"plimsoll.statement.failed","message":"failed statement",` +
			whose + `"db.system.name":"postgresql","db.namespace":"books","user.name":"ada","db.query.text":"SELECT 1/0, '\u003c\"ä\"\u003e'",` +
			`"db.response.status_code":"22012","error.type":"22012","network.transport":"unix","plimsoll.role":"primary","plimsoll.query.id":"00000000000000ab",` +
			`"plimsoll.query.literal":true,"plimsoll.query.cut":true,"plimsoll.query.nth":1,` + times +
			`"plimsoll.statement.rows":0,"plimsoll.statement.received":40,"plimsoll.statement.sent":90}`},
		"one of which little is known": {
			Entry{Kind: event.Failed, End: time.Unix(0, 0), State: divided, Origin: Origin{Instance: aggregate.Instance{Namespace: "shop", Database: "orders", Name: "orders-1"}}},
			`{"time":"1970-01-01T00:00:00Z","severity":"ERROR","event":"plimsoll.statement.failed","message":"failed statement","service.namespace":"shop",` +
				`"service.name":"orders","service.instance.id":"orders-1","k8s.namespace.name":"shop","k8s.pod.name":"orders-1","db.system.name":"postgresql",` +
				`"db.response.status_code":"22012","error.type":"22012","plimsoll.statement.rows":0,"plimsoll.statement.received":0,"plimsoll.statement.sent":0}`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var b bytes.Buffer
			if err := NewLines(&b).Send(t.Context(), []Entry{row.entry, row.entry}); err != nil {
				t.Fatal(err)
			}
			lines := slices.Collect(strings.Lines(b.String()))
			if diff := cmp.Diff([]string{row.want + "\n", row.want + "\n"}, lines); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if !json.Valid([]byte(lines[0])) {
				t.Error("it is no JSON")
			}
		})
	}
}

func TestNoFieldHasTheNameOfAnother(t *testing.T) {
	for _, e := range []Entry{slow(), failed()} {
		seen := map[string]bool{}
		for _, f := range append(e.Origin.fields(), e.fields()...) {
			if seen[f.name] {
				t.Errorf("%s comes twice", f.name)
			}
			seen[f.name] = true
		}
	}
}
