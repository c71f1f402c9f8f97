package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// maxConnections to one port; members, managers and a person with the plugin need a few each.
	maxConnections = 128
	maxHeader      = 8 << 10
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	askTimeout     = 5 * time.Second
	// watchEvery is how often a watcher hears of an agent whose state does not change.
	watchEvery = 5 * time.Second
	// watchFor bounds one watch, and with it how long a connection outlives its certificate; the watcher dials again.
	watchFor = 10 * time.Minute
	// watchPause bounds how often a watcher hears of an agent that changes all the time.
	watchPause = 50 * time.Millisecond
)

// service answers the manager and the members.
type service struct {
	cfg      Config
	log      *slog.Logger
	certs    *certificates
	reporter teller
	// relay passes on what other members say; nil for nothing.
	relay *relay
	// take an aim: nil, or why not.
	take func(aim engine.Aim, raw []byte) error
	// program takes another program for this process: nil, or why not.
	program func(ctx context.Context, from io.Reader, size int64, digest, version string) error
	// lease takes the members' messages about the leadership.
	lease http.Handler
}

// teller has the newest report, when it was made, and a channel that is closed at the next change.
type teller interface {
	get() (engine.Report, time.Time, <-chan struct{})
}

func (s *service) handler(closing <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/aim", s.only(manager, s.putAim))
	mux.HandleFunc("GET "+client.ReportPath, s.only(anyone, func(w http.ResponseWriter, r *http.Request, who client.Identity) { s.getReport(w, r, who, closing) }))
	if s.program != nil { // a witness is made anew
		mux.HandleFunc("PUT "+client.ProgramPath, s.only(manager, s.putProgram))
	}
	mux.HandleFunc("POST "+lease.Path, s.only(member, func(w http.ResponseWriter, r *http.Request, _ client.Identity) { s.lease.ServeHTTP(w, r) }))
	return mux
}

// server whose watchers leave once closing is closed.
func (s *service) server(closing <-chan struct{}) *http.Server {
	return &http.Server{
		Handler: s.handler(closing), TLSConfig: s.tls(), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// tls is asked for at each handshake, so that new certificates and authorities are used from the next connection on.
func (s *service) tls() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, pool, err := s.certs.current()
		if err != nil {
			s.log.Error("no certificate", "error", err.Error())
			return nil, err
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: base.NextProtos,
			Certificates: []tls.Certificate{*pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			VerifyConnection: func(c tls.ConnectionState) error {
				_, err := client.Identify(c.PeerCertificates[0], s.cfg.UID)
				return err
			},
		}, nil
	}
	return base
}

type callers int

const (
	anyone callers = iota
	manager
	member
)

type answer func(w http.ResponseWriter, r *http.Request, who client.Identity)

// only lets some callers in. A connection whose certificate has run out since its handshake is refused, too.
func (s *service) only(who callers, next answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "a client certificate is needed", http.StatusUnauthorized)
			return
		}
		leaf := r.TLS.PeerCertificates[0]
		caller, err := client.Identify(leaf, s.cfg.UID)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		case time.Now().After(leaf.NotAfter):
			w.Header().Set("Connection", "close")
			http.Error(w, "the client certificate has run out", http.StatusForbidden)
			return
		case who == manager && !caller.Manager, who == member && caller.Manager:
			http.Error(w, fmt.Sprintf("%q may not do this", leaf.Subject.CommonName), http.StatusForbidden)
			return
		}
		next(w, r, caller)
	}
}

func (s *service) putAim(w http.ResponseWriter, r *http.Request, _ client.Identity) {
	var a engine.Aim
	raw, ok := decode(w, r, maxState, &a)
	if !ok {
		return
	}
	if why := misdirected(s.cfg, a); why != "" {
		http.Error(w, why, http.StatusMisdirectedRequest)
		return
	}
	err := s.take(a, raw)
	var stale *staleError
	switch {
	case errors.As(err, &stale):
		http.Error(w, stale.Error(), http.StatusConflict)
	case err != nil:
		s.log.Error("aim not taken", "error", err.Error())
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// putProgram takes a program of a few megabytes, which may take its time on the way.
func (s *service) putProgram(w http.ResponseWriter, r *http.Request, _ client.Identity) {
	out := http.NewResponseController(w)
	by := time.Now().Add(client.ProgramTimeout)
	if err := errors.Join(out.SetReadDeadline(by), out.SetWriteDeadline(by)); err != nil {
		http.Error(w, "a program takes longer than this connection may", http.StatusInternalServerError)
		return
	}
	err := s.program(r.Context(), r.Body, r.ContentLength, r.Header.Get(client.ProgramDigest), r.Header.Get(client.ProgramVersion))
	var no *refused
	switch {
	case errors.As(err, &no):
		s.log.Warn("program refused", "error", err.Error())
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// staleError says that an aim was decided on an older epoch than one that this agent has seen.
type staleError struct{ aim, seen int64 }

func (e *staleError) Error() string {
	return fmt.Sprintf("the aim was decided on epoch %d, this agent has seen epoch %d", e.aim, e.seen)
}

func (s *service) getReport(w http.ResponseWriter, r *http.Request, who client.Identity, closing <-chan struct{}) {
	if r.URL.Query().Get("watch") != "true" {
		report, _, _ := s.reporter.get()
		w.Header().Set("Content-Type", "application/json")
		writeJSON(w, report)
		return
	}
	s.watch(w, r, who, closing)
}

// watch streams reports, one a line; those of the other members too for a manager that asks for them.
func (s *service) watch(w http.ResponseWriter, r *http.Request, who client.Identity, closing <-chan struct{}) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	// Not all that began together end together: a manager that has just begun opened hundreds within a second.
	ctx, cancel := context.WithTimeout(r.Context(), watchFor-rand.N(watchFor/5))
	defer cancel()
	var members *relayed
	if who.Manager && r.URL.Query().Get("members") == "true" {
		members = s.relay.begin()
		defer members.end()
	}
	for {
		members.follow(ctx)
		report, _, changed := s.reporter.get()
		if !writeLine(w, report) || !pass(ctx, w, members.reports(), changed, closing) {
			return
		}
		pause := time.NewTimer(watchPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-closing:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// pass others' reports on until it is time for this member's own; false if the watcher is gone. What they say has had its pause where
// it comes from.
func pass(ctx context.Context, w http.ResponseWriter, others <-chan engine.Report, changed, closing <-chan struct{}) bool {
	timer := time.NewTimer(watchEvery)
	defer timer.Stop()
	for {
		select {
		case r := <-others:
			if !writeLine(w, r) {
				return false
			}
			continue
		case <-ctx.Done():
		case <-closing:
		case <-changed:
		case <-timer.C:
		}
		return true
	}
}

func writeLine(w http.ResponseWriter, r engine.Report) bool {
	out := http.NewResponseController(w)
	return out.SetWriteDeadline(time.Now().Add(requestTimeout)) == nil && writeJSON(w, r) && out.Flush() == nil
}

// wantsFresh says that the answer's position decides: who asks waits for this member to hold all.
func wantsFresh(r lease.Request, self string) bool {
	return r.Kind == lease.KindGrant && r.Heir == self || r.Kind == lease.KindPreVote
}

// decode reads one bounded JSON value and returns it as it came, or answers what is wrong with it.
func decode(w http.ResponseWriter, r *http.Request, limit int64, into any) ([]byte, bool) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("the request is larger than %d bytes", limit), http.StatusRequestEntityTooLarge)
		return nil, false
	case err != nil:
		http.Error(w, "the request ended early", http.StatusBadRequest)
		return nil, false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		http.Error(w, "the request is no JSON value of the right kind: "+err.Error(), http.StatusBadRequest)
		return nil, false
	}
	return raw, true
}

func writeJSON(w io.Writer, v any) bool {
	raw, err := json.Marshal(v)
	if err != nil {
		return false
	}
	_, err = w.Write(append(raw, '\n'))
	return err == nil
}
