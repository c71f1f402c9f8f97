// Package crowd plays the pods of many Databases: a simulated kubelet, and agents that speak the real protocol over real mTLS.
package crowd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Version of the servers that the agents say they run.
const Version = "15.18"

// toldEvery is how often an agent that has no news speaks all the same, as the real one.
const toldEvery = 5 * time.Second

// maxAim bounds an aim that is read, as the real agent does.
const maxAim = 4 << 20

// Agents are those of all pods, behind one listener: which of them is meant, the address says that was dialled.
type Agents struct {
	server *http.Server

	mu       sync.Mutex
	at       map[string]*agent // by address
	clusters map[string]*members
	streams  atomic.Int64
}

// members of one Database, and what its Lease says.
type members struct {
	mu     sync.Mutex
	all    []*agent
	epoch  int64
	leader string
	voters []string
	record recorder
}

// recorder writes the Lease.
type recorder func(epoch int64, leader string, voters []string)

type agent struct {
	of      *members
	name    string
	address string
	uid     string
	secrets string
	config  *tls.Config
	aim     *engine.Aim
	aimed   time.Time     // when it came
	changed chan struct{} // closed and made anew at each change
}

// Listen on the agents' port of every address that leads here.
func Listen() (*Agents, error) {
	a := &Agents{at: map[string]*agent{}, clusters: map[string]*members{}}
	l, err := net.Listen("tcp4", ":"+strconv.Itoa(engine.AgentPort))
	if err != nil {
		return nil, fmt.Errorf("listen for the agents: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/aim", a.takeAim)
	mux.HandleFunc("GET /v1/report", a.tell)
	a.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			found := a.of(h.Conn.LocalAddr().String())
			if found == nil {
				return nil, fmt.Errorf("nobody is at %s", h.Conn.LocalAddr())
			}
			return found.config, nil
		}},
	}
	go func() { _ = a.server.ServeTLS(l, "", "") }()
	return a, nil
}

// Stop all of them: nothing of them is worth a graceful end.
func (a *Agents) Stop() { _ = a.server.Close() }

// Streams of reports that are open.
func (a *Agents) Streams() int { return int(a.streams.Load()) }

func (a *Agents) of(local string) *agent {
	host, _, _ := net.SplitHostPort(local)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at[host]
}

// add an agent with the content of its member's Secret. It takes the place of an earlier one of its name.
func (a *Agents) add(database, name, uid, address, secrets string, content map[string][]byte, record recorder) error {
	pair, err := tls.X509KeyPair(content["tls.crt"], content["tls.key"])
	if err != nil {
		return fmt.Errorf("member certificate of %s: %w", name, err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content["ca.crt"])
	a.join(database, &agent{
		name: name, address: address, uid: uid, secrets: secrets, changed: make(chan struct{}),
		config: &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
	}, record)
	return nil
}

// join and remove hold one lock at a time: who records a leadership keeps that of its Database for a while.
func (a *Agents) join(database string, made *agent, record recorder) {
	a.mu.Lock()
	of := a.clusters[database]
	if of == nil {
		of = &members{record: record}
		a.clusters[database] = of
	}
	a.mu.Unlock()
	earlier, _ := of.without(made.name)
	made.of = of
	of.mu.Lock()
	of.all = append(of.all, made)
	of.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, earlier)
	a.at[made.address] = made
}

// remove an agent, and its Database with the last.
func (a *Agents) remove(database, name string) {
	a.mu.Lock()
	of := a.clusters[database]
	a.mu.Unlock()
	if of == nil {
		return
	}
	address, left := of.without(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, address)
	if left == 0 {
		delete(a.clusters, database)
	}
}

// without takes a member away and returns its address, empty if there was none, and how many are left.
func (of *members) without(name string) (address string, left int) {
	of.mu.Lock()
	defer of.mu.Unlock()
	of.all = slices.DeleteFunc(of.all, func(m *agent) bool {
		if m.name == name {
			address = m.address
		}
		return m.name == name
	})
	return address, len(of.all)
}

func (a *Agents) takeAim(w http.ResponseWriter, r *http.Request) {
	var aim engine.Aim
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAim)).Decode(&aim); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	me := a.called(r)
	if me == nil {
		http.Error(w, "the pod has ended", http.StatusGone)
		return
	}
	of := me.of
	of.mu.Lock()
	defer of.mu.Unlock()
	if aim.Epoch < of.epoch {
		http.Error(w, "a later epoch was seen", http.StatusConflict)
		return
	}
	me.aim, me.aimed = &aim, time.Now()
	of.decide(me)
	for _, m := range of.all {
		close(m.changed)
		m.changed = make(chan struct{})
	}
	w.WriteHeader(http.StatusNoContent)
}

// called is the agent that a request came to; nil if its pod has ended since the connection was made.
func (a *Agents) called(r *http.Request) *agent {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return a.of(local.String())
}

// decide lets the bootstrap member lead, and all that have an aim vote.
func (of *members) decide(me *agent) {
	if of.epoch == 0 && me.aim.Bootstrap == me.name {
		of.epoch, of.leader = 1, me.name
	}
	var voters []string
	for _, m := range of.all {
		if m.aim != nil {
			voters = append(voters, m.name)
		}
	}
	slices.Sort(voters)
	if of.epoch == 0 || slices.Equal(voters, of.voters) {
		return
	}
	of.voters = voters
	of.record(of.epoch, of.leader, voters)
}

// tell the report, and go on telling it to who watches.
func (a *Agents) tell(w http.ResponseWriter, r *http.Request) {
	me := a.called(r)
	if me == nil {
		http.Error(w, "the pod has ended", http.StatusGone)
		return
	}
	encode := json.NewEncoder(w)
	if r.URL.Query().Get("watch") == "" {
		_ = encode.Encode(me.report())
		return
	}
	a.streams.Add(1)
	defer a.streams.Add(-1)
	speakers := []*agent{me}
	for {
		if r.URL.Query().Get("members") != "" {
			speakers = me.withOthers()
		}
		changed := me.told()
		for _, m := range speakers {
			if encode.Encode(m.report()) != nil {
				return
			}
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		timer := time.NewTimer(toldEvery)
		select {
		case <-r.Context().Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// told is closed at the next change in its Database.
func (me *agent) told() <-chan struct{} {
	me.of.mu.Lock()
	defer me.of.mu.Unlock()
	return me.changed
}

// withOthers are those whose reports an agent passes on, and itself.
func (me *agent) withOthers() []*agent {
	me.of.mu.Lock()
	defer me.of.mu.Unlock()
	return append([]*agent{me}, slices.DeleteFunc(slices.Clone(me.of.all), func(m *agent) bool { return m == me })...)
}

// report of a server that does what it should and that nobody uses.
func (me *agent) report() engine.Report {
	of := me.of
	of.mu.Lock()
	defer of.mu.Unlock()
	r := engine.Report{
		Instance: me.name, UID: me.uid, AgentVersion: "simulated", Epoch: of.epoch, Leader: of.leader, Voters: slices.Clone(of.voters),
		Role: engine.Replica, State: "starting", SecretsHash: me.secrets, MaxConnections: 100, Connections: 3,
		Position: engine.Position{Timeline: 1, Bytes: 1 << 24, Text: "0/1000000"},
		Data:     engine.VolumeUse{Size: 1 << 30, Used: 1 << 26}, WALBytes: 1 << 24,
	}
	if me.aim == nil || of.epoch == 0 {
		return r
	}
	r.State, r.Version, r.Ready, r.Converged = "running", Version, true, true
	r.Revision, _ = me.aim.Revision()
	if of.leader == me.name {
		r.Leading, r.Role, r.InSync, r.SyncWanted = true, engine.Primary, len(of.voters)-1, len(of.voters)/2
		for _, v := range of.voters {
			if v != me.name {
				r.Streaming = append(r.Streaming, v)
				r.Slots = append(r.Slots, engine.Slot{Name: v, Active: true})
			}
		}
	}
	return r
}

// Await returns when all members of a Database have an aim that satisfies want, and when the last of them came.
func (a *Agents) Await(ctx context.Context, database string, members int, want func(engine.Aim) bool) (time.Time, error) {
	a.mu.Lock()
	of := a.clusters[database]
	a.mu.Unlock()
	for {
		var last time.Time
		n := 0
		of.mu.Lock()
		for _, m := range of.all {
			if m.aim != nil && want(*m.aim) {
				n++
				last = later(last, m.aimed)
			}
		}
		of.mu.Unlock()
		if n == members {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("%d of %d members of %s have the change: %w", n, members, database, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
