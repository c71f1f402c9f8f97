// Package client is how the manager, the plugin and the members themselves talk to the agents of one Database.
package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// The answers of an agent that a caller acts on.
var (
	// ErrStale says that the agent has seen a later epoch than the aim was decided on: look again, decide again.
	ErrStale = errors.New("the agent has seen a later epoch")
	// ErrMisdirected says that another Database's or member's agent answered: its address is out of date.
	ErrMisdirected = errors.New("the agent serves another member")
	// ErrRefused says that the agent does not accept this caller's certificate or request.
	ErrRefused = errors.New("the agent refused the request")
)

var errClosed = errors.New("the client is closed")

const (
	dialTimeout = 2 * time.Second
	// callTimeout bounds SetAim and Report when the caller's context allows more.
	callTimeout = 5 * time.Second
	// silence is how long a watched agent may say nothing; it speaks at least each five seconds.
	silence = 12 * time.Second
	// maxReport bounds one report; maxError the text of a refusal.
	maxReport = 1 << 20
	maxError  = 4 << 10
	idleTime  = 2 * time.Minute
)

// Client talks to the agents of one Database. It is safe for many goroutines and keeps connections; Close ends them.
type Client struct {
	uid    string
	source Source
	port   int
	lookup func(ctx context.Context, host string) ([]string, error)

	mu      sync.Mutex
	members map[string]*http.Client
	closed  bool
}

// Option changes a Client.
type Option func(*Client)

// WithPort makes the client dial another port than engine.AgentPort.
func WithPort(port int) Option { return func(c *Client) { c.port = port } }

// WithLookup makes the client find addresses that way.
func WithLookup(lookup func(ctx context.Context, host string) ([]string, error)) Option {
	return func(c *Client) { c.lookup = lookup }
}

// New returns a client for the agents of the Database with the UID.
func New(uid string, source Source, options ...Option) *Client {
	c := &Client{uid: uid, source: source, port: engine.AgentPort, members: map[string]*http.Client{}}
	for _, o := range options {
		o(c)
	}
	return c
}

// maxMembers bounds the members that connections are kept to; far above what a Database can have.
const maxMembers = 64

// of returns the HTTP client of one member. Each has its own, because the certificate is checked against the member's name,
// not against the address that it is reached by.
func (c *Client) of(member string) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if h, ok := c.members[member]; ok {
		return h, nil
	}
	if len(c.members) >= maxMembers {
		for name, h := range c.members {
			h.CloseIdleConnections()
			delete(c.members, name)
		}
	}
	h := &http.Client{
		Transport: &http.Transport{
			DialTLSContext:      c.dialer(member),
			MaxIdleConnsPerHost: 2,
			MaxConnsPerHost:     8,
			IdleConnTimeout:     idleTime,
			ReadBufferSize:      4 << 10,
			WriteBufferSize:     4 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.members[member] = h
	return h, nil
}

func (c *Client) dialer(member string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		cfg, err := config(c.source, c.uid, member)
		if err != nil {
			return nil, err
		}
		d := tls.Dialer{NetDialer: &net.Dialer{KeepAlive: 5 * time.Second}, Config: cfg}
		places, err := c.find(ctx, addr)
		if err != nil {
			return nil, err
		}
		return first(ctx, places, func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, network, addr) })
	}
}

// find the addresses by the client's own way, if it has one.
func (c *Client) find(ctx context.Context, addr string) ([]string, error) {
	if c.lookup == nil {
		return []string{addr}, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	found, err := c.lookup(ctx, host)
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("find the address of %s: %w", host, err)
	}
	var places []string
	for _, at := range found[:min(len(found), maxPlaces)] {
		places = append(places, net.JoinHostPort(at, port))
	}
	return places, nil
}

// first dials all addresses at once: where a member was before, nobody may answer, or somebody without its certificate.
func first(ctx context.Context, places []string, dial func(context.Context, string) (net.Conn, error)) (net.Conn, error) {
	if len(places) == 1 {
		return dial(ctx, places[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type reached struct {
		conn net.Conn
		err  error
	}
	all := make(chan reached, len(places))
	for _, at := range places {
		go func() {
			conn, err := dial(ctx, at)
			all <- reached{conn, err}
		}()
	}
	var won net.Conn
	var failed error
	for range places {
		switch r := <-all; {
		case r.err != nil:
			failed = errors.Join(failed, r.err)
		case won != nil:
			_ = r.conn.Close() // one was enough
		default:
			won = r.conn
			cancel() // the others give up now
		}
	}
	if won == nil {
		return nil, failed
	}
	return won, nil
}

// maxPlaces bounds the addresses that are tried for one member.
const maxPlaces = 4

// Close ends idle connections; those in use end with their calls.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, h := range c.members {
		h.CloseIdleConnections()
	}
}

// SetAim publishes the aim to the member that it is for, at the address.
func (c *Client) SetAim(ctx context.Context, address string, aim engine.Aim) error {
	raw, err := json.Marshal(aim)
	if err != nil {
		return fmt.Errorf("encode aim for %s: %w", aim.Member, err)
	}
	return c.call(ctx, http.MethodPut, engine.Peer{Name: aim.Member, Address: address}, "/v1/aim", raw, nil)
}

// Report asks the member for its report.
func (c *Client) Report(ctx context.Context, to engine.Peer) (engine.Report, error) {
	var r engine.Report
	err := c.call(ctx, http.MethodGet, to, "/v1/report", nil, &r)
	return r, err
}

// Post sends a JSON value to a path of the member and reads the answer into out.
func (c *Client) Post(ctx context.Context, to engine.Peer, path string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request to %s: %w", to.Name, err)
	}
	return c.call(ctx, http.MethodPost, to, path, raw, out)
}

// WatchReports calls told with each report that the member sends, until the context ends, the connection breaks, or the member
// is silent for longer than it may be. It always returns an error, the context's if that is why; the caller dials again.
func (c *Client) WatchReports(ctx context.Context, to engine.Peer, told func(engine.Report)) error {
	conn, resp, err := c.stream(ctx, to, "/v1/report?watch=true") //nolint:bodyclose // its connection is closed
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // read only: nothing to lose
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 1<<10), maxReport)
	// A connection that is closed already says so when it is read.
	for _ = conn.SetReadDeadline(time.Now().Add(silence)); lines.Scan(); _ = conn.SetReadDeadline(time.Now().Add(silence)) {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var r engine.Report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("read a report of %s: %w", to.Name, err)
		}
		told(r)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(lines.Err(), os.ErrDeadlineExceeded):
		return fmt.Errorf("%s said nothing for %s", to.Name, silence)
	case lines.Err() != nil:
		return fmt.Errorf("watch %s: %w", to.Name, lines.Err())
	}
	return fmt.Errorf("watch %s: %w", to.Name, io.EOF)
}

// How a program is sent to an agent.
const (
	ProgramPath    = "/v1/agent"
	ProgramDigest  = "Plimsoll-Digest"
	ProgramVersion = "Plimsoll-Version"
	// ProgramTimeout bounds it, the agent's checks included.
	ProgramTimeout = time.Minute
)

// Program is one of an agent.
type Program struct {
	// Digest as sha256:..., Version for people, and Size in bytes.
	Digest, Version string
	Size            int64
	// Open the content; it is closed by whoever sends it.
	Open func() (io.ReadCloser, error)
}

// Exchange sends the agent of a member another program to become at the next quiet moment; its report tells when it has, or why not.
func (c *Client) Exchange(ctx context.Context, to engine.Peer, p Program) error {
	ctx, cancel := context.WithTimeout(ctx, ProgramTimeout)
	defer cancel()
	file, err := p.Open()
	if err != nil {
		return fmt.Errorf("read the agent's program: %w", err)
	}
	defer func() { _ = file.Close() }() // read only: nothing to lose
	resp, err := c.send(ctx, http.MethodPut, to, ProgramPath, file, func(r *http.Request) {
		r.ContentLength = p.Size
		r.Header.Set(ProgramDigest, p.Digest)
		r.Header.Set(ProgramVersion, p.Version)
	})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// stream sends a request on a connection of its own. A manager holds thousands of those: net/http's would cost two more goroutines and
// three more buffers each.
func (c *Client) stream(ctx context.Context, to engine.Peer, path string) (net.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := c.request(ctx, http.MethodGet, to, path, nil)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, nil, errClosed
	}
	conn, err := c.dialer(to.Name)(ctx, "tcp", req.URL.Host)
	if err != nil {
		return nil, nil, fmt.Errorf("reach the agent of %s: %w", to.Name, err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	err = req.Write(conn)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(bufio.NewReaderSize(conn, 2<<10), req)
	}
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = refused(resp, to.Name)
	}
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, nil, fmt.Errorf("reach the agent of %s: %w", to.Name, err)
	}
	return conn, resp, nil
}

func (c *Client) call(ctx context.Context, method string, to engine.Peer, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.do(ctx, method, to, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing to lose
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxError)) // so that the connection can be used again
		return err
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxReport))
	if err != nil {
		return fmt.Errorf("%s %s of %s: %w", method, path, to.Name, err)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s %s of %s: %w", method, path, to.Name, err)
	}
	return nil
}

// do sends one request and returns the response of a success; everything else is an error.
func (c *Client) do(ctx context.Context, method string, to engine.Peer, path string, body []byte) (*http.Response, error) {
	return c.send(ctx, method, to, path, content(body), func(*http.Request) {})
}

// send a request with any content, described by its headers.
func (c *Client) send(ctx context.Context, method string, to engine.Peer, path string, body io.Reader, describe func(*http.Request)) (*http.Response, error) {
	h, err := c.of(to.Name)
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, method, to, path, body)
	if err != nil {
		return nil, err
	}
	describe(req)
	resp, err := h.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reach the agent of %s: %w", to.Name, err)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	return nil, refused(resp, to.Name)
}

func (c *Client) request(ctx context.Context, method string, to engine.Peer, path string, body io.Reader) (*http.Request, error) {
	url := "https://" + net.JoinHostPort(to.Address, strconv.Itoa(c.port)) + path
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s of %s: %w", method, path, to.Name, err)
	}
	if _, ok := body.(*bytes.Reader); ok {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// content of a request; nil for none.
func content(body []byte) io.Reader {
	if body == nil {
		return nil
	}
	return bytes.NewReader(body)
}

func refused(resp *http.Response, member string) error {
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // the status says enough if the text does not come
	_ = resp.Body.Close()                                      // read only: nothing to lose
	return refusal(resp.StatusCode, member, strings.TrimSpace(string(said)))
}

func refusal(code int, member, said string) error {
	if said == "" {
		said = http.StatusText(code)
	}
	switch {
	case code == http.StatusConflict:
		return fmt.Errorf("agent of %s: %w: %s", member, ErrStale, said)
	case code == http.StatusMisdirectedRequest:
		return fmt.Errorf("agent of %s: %w: %s", member, ErrMisdirected, said)
	case code < http.StatusInternalServerError:
		return fmt.Errorf("agent of %s: %w: %s", member, ErrRefused, said)
	}
	return fmt.Errorf("agent of %s: %d: %s", member, code, said)
}
