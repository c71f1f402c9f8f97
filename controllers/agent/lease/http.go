package lease

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Path is where Handler serves; the kind of request follows.
const Path = "/lease/v1/"

// maxBody bounds a message in either direction; the largest real one has under 2 KiB.
const maxBody = 8 << 10

// Asker answers a peer's request; a Runner is one.
type Asker interface {
	Ask(ctx context.Context, r Request) (Answer, error)
}

// Caller is who a client certificate proves to be calling.
type Caller struct {
	Name   string
	Member bool // of this Database; anybody else, such as the manager, may ask for the status only
}

// Identify tells who calls, from the client certificate. An error refuses the caller.
type Identify func(r *http.Request) (Caller, error)

// Handler serves POST /lease/v1/{grant,prevote,support,release,status}. The
// server around it does mutual TLS and sets the time-outs for headers and idle
// connections. A sender that is not who its certificate says is refused.
func Handler(a Asker, who Identify) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, ok := strings.CutPrefix(r.URL.Path, Path)
		if !ok || r.Method != http.MethodPost {
			http.Error(w, "POST "+Path+"{grant,prevote,support,release,status}", http.StatusNotFound)
			return
		}
		caller, err := who(r)
		if err != nil || !caller.Member && kind != string(KindStatus) {
			http.Error(w, "no certificate that entitles to this", http.StatusForbidden)
			return
		}
		var req Request
		if err := readJSON(http.MaxBytesReader(w, r.Body, maxBody), &req); err != nil {
			http.Error(w, "request: "+err.Error(), http.StatusBadRequest)
			return
		}
		if req.Kind != Kind(kind) || req.From != caller.Name {
			http.Error(w, "path, sender and certificate do not agree", http.StatusForbidden)
			return
		}
		answer, err := a.Ask(r.Context(), req)
		if err != nil {
			http.Error(w, "no answer in time", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			return // the caller is gone; it will ask again
		}
	})
}

// readJSON reads one value. Unknown fields pass, so that members of two
// versions can talk during an upgrade; a rule never hides in a new field.
func readJSON(r io.Reader, into any) error {
	d := json.NewDecoder(r)
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// Peers is the Transport over HTTP.
type Peers struct {
	client *http.Client
	url    func(member string) string
}

// NewPeers returns a Transport that finds a member's base URL with url, such as
// https://10.0.0.7:8443. See NewPeerClient for the client.
func NewPeers(client *http.Client, url func(member string) string) *Peers {
	return &Peers{client: client, url: url}
}

// NewPeerClient returns a client for NewPeers. It keeps connections alive and
// speaks HTTP/1.1: there a request that times out closes its own connection,
// while one HTTP/2 connection into a vanished node would hold up all of them.
func NewPeerClient(tlsConfig *tls.Config) *http.Client {
	dialer := &net.Dialer{Timeout: 400 * time.Millisecond, KeepAlive: 15 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        tlsConfig,
			TLSHandshakeTimeout:    400 * time.Millisecond,
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConnsPerHost:    2,
			MaxConnsPerHost:        sendsAtOne,
			IdleConnTimeout:        time.Minute,
			ResponseHeaderTimeout:  2 * time.Second,
			MaxResponseHeaderBytes: maxBody,
			WriteBufferSize:        2 << 10,
			ReadBufferSize:         2 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Send carries the request. ctx bounds it.
func (p *Peers) Send(ctx context.Context, to string, r Request) (Answer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return Answer{}, fmt.Errorf("encode %s request to %s: %w", r.Kind, to, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url(to)+Path+string(r.Kind), bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("%s request to %s: %w", r.Kind, to, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("%s request to %s: %w", r.Kind, to, err)
	}
	defer func() { _ = res.Body.Close() }() // read to the end below
	if res.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(res.Body, 200)) // only for the message
		return Answer{}, fmt.Errorf("%s request to %s: %s: %s", r.Kind, to, res.Status, strings.TrimSpace(string(why)))
	}
	var a Answer
	if err := readJSON(io.LimitReader(res.Body, maxBody), &a); err != nil {
		return Answer{}, fmt.Errorf("%s request to %s: answer: %w", r.Kind, to, err)
	}
	if a.From != to {
		return Answer{}, fmt.Errorf("%s request to %s: %s answered", r.Kind, to, a.From)
	}
	return a, nil
}
