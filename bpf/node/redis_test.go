package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
)

func TestTheCommandsOfARedisAreAtTheMetricsEndpointBesideStatements(t *testing.T) {
	orders := newServer(t, "orders-1", attribute.Container{Pod: "4f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("5e", 32)})
	cart := newRedis(t, "cart-1", attribute.Container{Pod: "5f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("6f", 32)})
	r := &running{}
	r.set(orders.Instance, cart.Instance)
	url := start(t, r)
	states := func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") }
	await(t, map[string]float64{"measured": 2, "partly": 0, "unseen": 0, "waiting": 0}, states)
	orders.Psql(t, "require", "SELECT 1")
	cart.Cli(t, "disable", "set", "user:1:cart", "x")
	cart.Cli(t, "require", "get", "user:1:cart")
	cart.Cli(t, "require", "-n", "2", "lpush", "user:1:cart")
	await(t, map[string]float64{"set user:*:cart default 0": 1, "get user:*:cart default 0": 1, "select default 0": 1, "lpush user:*:cart default 2": 1}, func() map[string]float64 {
		return byText(t, url, "plimsoll_statements_total", cart.Name, "user", "datname")
	})
	await(t, map[string]float64{"lpush user:*:cart ERR": 1}, func() map[string]float64 {
		return byText(t, url, "plimsoll_statement_errors_total", cart.Name, "sqlstate_class")
	})
	await(t, map[string]float64{"SELECT ?": 1}, func() map[string]float64 { return byText(t, url, "plimsoll_statements_total", orders.Name) })
	hooks := func() map[string]float64 { return scrape(t, url, "plimsoll_probe_hook_attached", "hook") }
	if diff := cmp.Diff(map[string]float64{"syscalls": 1, "programs": 1, "connections": 1, "reads": 1}, hooks()); diff != "" {
		t.Errorf("hooks: %s", diff)
	}
	// Without a Redis the node's reads and writes are let alone.
	r.set(orders.Instance)
	await(t, map[string]float64{"measured": 1, "partly": 0, "unseen": 0, "waiting": 0}, states)
	await(t, map[string]float64{"syscalls": 1, "programs": 1, "connections": 1}, hooks)
}
