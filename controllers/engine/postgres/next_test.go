package postgres

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// member of orders, healthy unless changed.
func member(n int32, change ...func(*engine.Member)) engine.Member {
	m := engine.Member{
		Name: InstanceName("orders", n), Ordinal: n, Voter: true, Image: "docker.io/library/postgres:17",
		Report: &engine.Report{Epoch: 7, Role: engine.Replica, State: "running", Ready: true, Settings: map[string]string{}},
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func leads(m *engine.Member)    { m.Leader, m.Report.Role = true, engine.Primary }
func silent(m *engine.Member)   { m.Report = nil }
func sick(m *engine.Member)     { m.Report.Ready = false }
func learner(m *engine.Member)  { m.Voter = false }
func oldImage(m *engine.Member) { m.Image = "docker.io/library/postgres:16" }
func lag(n int64) func(*engine.Member) {
	return func(m *engine.Member) { m.Report.LagBytes = n }
}

func waits(names ...string) func(*engine.Member) {
	return func(m *engine.Member) { m.Report.RestartPending = names }
}

func runs(name, value string) func(*engine.Member) {
	return func(m *engine.Member) { m.Report.Settings[name] = value }
}

func TestNext(t *testing.T) {
	n := func(n int32) func(*v1.Database) { return func(d *v1.Database) { d.Spec.Replicas = &n } }
	three := []string{"orders-1", "orders-2", "orders-3"}
	type list []engine.Member
	rows := map[string]struct {
		d    *v1.Database
		all  list
		want engine.Topology // Reason is a part of the reason
	}{
		"a new database gets all its members":                {orders(), nil, engine.Topology{Members: three, Reason: "adding orders-1, orders-2, orders-3"}},
		"nothing is to do":                                   {orders(), list{member(1, leads), member(2), member(3)}, engine.Topology{Epoch: 7, Members: three}},
		"a gap is filled first":                              {orders(n(4)), list{member(1, leads), member(3)}, engine.Topology{Epoch: 7, Members: []string{"orders-1", "orders-2", "orders-3", "orders-4"}, Reason: "adding orders-2, orders-4"}},
		"names are in the order of their numbers":            {orders(n(2)), list{member(10, leads)}, engine.Topology{Epoch: 7, Members: []string{"orders-1", "orders-10"}, Reason: "adding orders-1"}},
		"the highest goes":                                   {orders(), list{member(1, leads), member(2), member(3), member(4), member(5)}, engine.Topology{Epoch: 7, Members: []string{"orders-1", "orders-2", "orders-3", "orders-4"}, Reason: "removing orders-5"}},
		"the leader stays":                                   {orders(n(1)), list{member(1), member(2, leads)}, engine.Topology{Epoch: 7, Members: []string{"orders-2"}, Reason: "removing orders-1"}},
		"the sick one goes before a majority does":           {orders(), list{member(1, silent), member(2, sick), member(3, leads), member(4), member(5)}, engine.Topology{Epoch: 7, Members: []string{"orders-1", "orders-3", "orders-4", "orders-5"}, Reason: "removing orders-2"}},
		"nobody goes while too few are ready":                {orders(), list{member(1, leads), member(2, sick), member(3, sick), member(4, sick)}, engine.Topology{Epoch: 7, Members: []string{"orders-1", "orders-2", "orders-3", "orders-4"}, Reason: "waiting for instances to become ready"}},
		"nobody goes without a leader":                       {orders(n(2)), list{member(1), member(2), member(3)}, engine.Topology{Epoch: 7, Members: three, Reason: "waiting for a leader"}},
		"a replica restarts first":                           {orders(), list{member(1, leads, waits("shared_buffers")), member(2, waits("shared_buffers")), member(3, waits("shared_buffers"))}, engine.Topology{Epoch: 7, Members: three, Restart: "orders-2", Reason: "restarting orders-2: replicas first"}},
		"one at a time":                                      {orders(), list{member(1, leads, waits("a")), member(2, sick), member(3, waits("a"))}, engine.Topology{Epoch: 7, Members: three, Reason: "waiting for orders-2"}},
		"one that lags is not ready":                         {orders(), list{member(1, leads, waits("a")), member(2, lag(-1)), member(3, waits("a"))}, engine.Topology{Epoch: 7, Members: three, Reason: "waiting for orders-2"}},
		"the sick one itself may restart":                    {orders(), list{member(1, leads), member(2, sick, waits("a")), member(3)}, engine.Topology{Epoch: 7, Members: three, Restart: "orders-2", Reason: "restarting orders-2"}},
		"the leader hands over before it restarts":           {orders(), list{member(1, leads, waits("a")), member(2, lag(10)), member(3, lag(5))}, engine.Topology{Epoch: 7, Members: three, Switchover: "orders-3", Reason: "handing over from orders-1 to orders-3"}},
		"a learner does not take over":                       {orders(), list{member(1, leads, waits("a")), member(2, lag(10)), member(3, learner)}, engine.Topology{Epoch: 7, Members: three, Switchover: "orders-2", Reason: "handing over"}},
		"the old leader restarts as a replica":               {orders(), list{member(1, waits("a")), member(2), member(3, leads)}, engine.Topology{Epoch: 7, Members: three, Restart: "orders-1", Reason: "restarting orders-1"}},
		"the only one restarts in place":                     {orders(n(1)), list{member(1, leads, waits("a"))}, engine.Topology{Epoch: 7, Members: []string{"orders-1"}, Restart: "orders-1", Reason: "the only instance"}},
		"with learners alone it restarts in place":           {orders(n(2)), list{member(1, leads, waits("a")), member(2, learner)}, engine.Topology{Epoch: 7, Members: []string{"orders-1", "orders-2"}, Restart: "orders-1", Reason: "no replica can take over"}},
		"an image rolls the same way":                        {orders(), list{member(1, leads, oldImage), member(2), member(3, oldImage)}, engine.Topology{Epoch: 7, Members: three, Restart: "orders-3", Reason: "restarting orders-3"}},
		"nothing restarts without a leader":                  {orders(), list{member(1, waits("a")), member(2), member(3)}, engine.Topology{Epoch: 7, Members: three, Reason: "waiting for a leader before orders-1"}},
		"what is lowered is lowered on the leader, in place": {orders(set("max_connections", "50")), list{member(1, leads, waits("max_connections"), runs("max_connections", "100")), member(2, runs("max_connections", "100")), member(3, runs("max_connections", "100"))}, engine.Topology{Epoch: 7, Members: three, Restart: "orders-1", Reason: "max_connections is lowered on the primary first"}},
		"what is raised needs a hand-over":                   {orders(set("max_connections", "200")), list{member(1, leads, waits("max_connections"), runs("max_connections", "100")), member(2, runs("max_connections", "200")), member(3, runs("max_connections", "200"))}, engine.Topology{Epoch: 7, Members: three, Switchover: "orders-2", Reason: "handing over"}},
		"a replica that is not told of the lower value yet":  {orders(set("max_connections", "50")), list{member(1, leads, runs("max_connections", "50")), member(2, runs("max_connections", "100")), member(3, runs("max_connections", "50"))}, engine.Topology{Epoch: 7, Members: three, Reason: "waiting for orders-2 to run with max_connections = 50"}},
		"nothing is done while paused":                       {orders(n(5), func(d *v1.Database) { d.Spec.Maintenance.Paused = true }), list{member(1, leads), member(2), member(3, waits("a"))}, engine.Topology{Epoch: 7, Members: three}},
		"nothing is done while hibernated":                   {orders(n(5), func(d *v1.Database) { d.Spec.Maintenance.Hibernated = true }), list{member(1, silent), member(2, silent), member(3, silent)}, engine.Topology{Members: three}},
		"a fenced member is left alone and holds up nobody":  {orders(func(d *v1.Database) { d.Spec.Maintenance.Fenced = []string{"orders-2"} }), list{member(1, leads), member(2, sick, waits("a")), member(3, waits("a"))}, engine.Topology{Epoch: 7, Members: three, Restart: "orders-3", Reason: "restarting orders-3"}},
	}
	e := New(Options{})
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			got := e.Next(row.d, row.all)
			if diff := cmp.Diff(row.want, got, cmpopts.IgnoreFields(engine.Topology{}, "Reason")); diff != "" {
				t.Error(diff)
			}
			if (row.want.Reason == "") != (got.Reason == "") || !strings.Contains(got.Reason, row.want.Reason) {
				t.Errorf("reason %q, want %q in it", got.Reason, row.want.Reason)
			}
		})
	}
}

func TestSensitiveParametersChangeInOrder(t *testing.T) {
	const p = "max_connections"
	rows := map[string]struct {
		want int
		all  []engine.Member
		on   map[string]string // file's value by member
	}{
		"raised: replicas at once, the primary waits": {
			200,
			[]engine.Member{member(1, leads, runs(p, "100")), member(2, runs(p, "100")), member(3, runs(p, "200"))},
			map[string]string{"orders-1": "100", "orders-2": "200", "orders-3": "200"},
		},
		"raised: the primary last": {
			200,
			[]engine.Member{member(1, leads, runs(p, "100")), member(2, runs(p, "200")), member(3, runs(p, "200"))},
			map[string]string{"orders-1": "200", "orders-2": "200"},
		},
		"raised: a silent replica is not taken for raised": {
			200,
			[]engine.Member{member(1, leads, runs(p, "100")), member(2, silent), member(3, runs(p, "200"))},
			map[string]string{"orders-1": "100"},
		},
		"lowered: the primary at once, replicas wait": {
			50,
			[]engine.Member{member(1, leads, runs(p, "100")), member(2, runs(p, "100"))},
			map[string]string{"orders-1": "50", "orders-2": "100"},
		},
		"lowered: replicas after the primary": {
			50,
			[]engine.Member{member(1, leads, runs(p, "50")), member(2, runs(p, "100"))},
			map[string]string{"orders-1": "50", "orders-2": "50"},
		},
		"lowered: a replica of a silent primary keeps its own": {
			50,
			[]engine.Member{member(1, leads, silent), member(2, runs(p, "100"))},
			map[string]string{"orders-2": "100"},
		},
		"nobody runs yet": {50, []engine.Member{member(1, silent), member(2, silent)}, map[string]string{"orders-1": "50", "orders-2": "50"}},
	}
	e := New(Options{})
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			d := orders(set(p, number(float64(row.want))))
			for _, m := range row.all {
				want, ok := row.on[m.Name]
				if !ok {
					continue
				}
				if file := e.Files(d, m, row.all)[FileParameters]; !strings.Contains(file, p+" = '"+want+"'\n") {
					t.Errorf("%s does not get %s:\n%s", m.Name, want, file)
				}
			}
		})
	}
}
