package node

import (
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// web is who all clients of these tests are.
func web(a netip.Addr) attribute.Client {
	if a.IsLoopback() {
		return attribute.Client{Namespace: "app", Kind: "Deployment", Name: "web"}
	}
	return attribute.Client{Kind: attribute.KindOutside}
}

// stays connects, and gives back what ends that; the test does, too.
func (s *server) stays(t *testing.T) (end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), observed.Bin+"psql", "-X", "-q", "-A", "-t", s.URL("disable", "postgres"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		in.Close()
		_ = cmd.Wait() // whatever became of its server
	}
	t.Cleanup(end)
	if _, err := io.WriteString(in, "\\echo ready\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatalf("psql: %v", err)
	}
	return end
}

func TestConnectionsOfEachClientAreAtTheMetricsEndpoint(t *testing.T) {
	s := newServer(t, "orders-1", attribute.Container{Pod: "5f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("6f", 32)})
	end := s.stays(t)
	r := &running{}
	r.set(s.Instance)
	url := start(t, r)
	of := func(family string, labels ...string) func() map[string]float64 {
		return func() map[string]float64 {
			return scrape(t, url, family, append([]string{"client_namespace", "client_kind", "client_name"}, labels...)...)
		}
	}
	const client = "app Deployment web"
	// It was there before.
	await(t, map[string]float64{client: 1}, of("plimsoll_connections"))
	s.Psql(t, "disable", "SELECT 1")
	s.Psql(t, "require", "SELECT 2")
	s.Psql(t, observed.Local, "SELECT 3") // not over TCP
	await(t, map[string]float64{client: 2}, of("plimsoll_connections_opened_total"))
	await(t, map[string]float64{client + " closed": 2, client + " reset": 0, client + " timed_out": 0}, of("plimsoll_connections_closed_total", "end"))
	end()
	await(t, map[string]float64{client: 0}, of("plimsoll_connections"))
	for _, family := range []string{"plimsoll_instance_connections_opened_total", "plimsoll_instance_connection_retransmits_total"} {
		want := map[string]float64{"plimsoll_instance_connections_opened_total": 2}[family]
		await(t, map[string]float64{"shop orders orders-1": want}, func() map[string]float64 { return scrape(t, url, family, "namespace", "database", "instance") })
	}
	for reason, n := range scrape(t, url, "plimsoll_probe_lost_total", "reason") {
		if n != 0 && strings.HasPrefix(reason, "tcp_") {
			t.Errorf("%v lost: %s", n, reason)
		}
	}
	// An instance that is gone is shown no longer.
	r.set()
	await(t, map[string]float64{}, of("plimsoll_connections"))
	await(t, map[string]float64{}, func() map[string]float64 { return scrape(t, url, "plimsoll_instance_connections_open", "instance") })
}
