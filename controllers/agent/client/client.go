// Package client is how the manager, the plugin and the members themselves talk to the agents of one Database.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	idle   time.Duration

	mu      sync.Mutex
	members map[string]*http.Client
	rest    *time.Timer // when nobody has called for so long that the connections are closed
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

// WithIdle makes the client keep a connection that nobody uses only that long.
func WithIdle(most time.Duration) Option { return func(c *Client) { c.idle = most } }

// New returns a client for the agents of the Database with the UID.
func New(uid string, source Source, options ...Option) *Client {
	c := &Client{uid: uid, source: source, port: engine.AgentPort, idle: idleTime, members: map[string]*http.Client{}}
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
	if c.rest == nil {
		c.rest = time.AfterFunc(c.idle, c.forget)
	}
	c.rest.Reset(c.idle)
	if h, ok := c.members[member]; ok {
		return h, nil
	}
	if len(c.members) >= maxMembers {
		c.drop()
	}
	h := &http.Client{
		Transport: &http.Transport{
			DialTLSContext:      c.dialer(member),
			MaxIdleConnsPerHost: 2,
			MaxConnsPerHost:     8,
			IdleConnTimeout:     c.idle,
			ReadBufferSize:      4 << 10,
			WriteBufferSize:     4 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.members[member] = h
	return h, nil
}

// forget what calls have left behind: a transport weighs two KiB without a connection, too.
func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

// drop the members; calls that are under way end on their own.
func (c *Client) drop() {
	for _, h := range c.members {
		h.CloseIdleConnections()
	}
	c.members = map[string]*http.Client{}
}

// Close ends idle connections; those in use end with their calls.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.rest != nil {
		c.rest.Stop()
	}
	c.drop()
}

// SetAim publishes the aim to the member that it is for, at the address.
func (c *Client) SetAim(ctx context.Context, address string, aim engine.Aim) error {
	raw, _, err := aim.Encode()
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPut, engine.Peer{Name: aim.Member, Address: address}, "/v1/aim", raw, nil)
}

// Report asks the member for its report.
func (c *Client) Report(ctx context.Context, to engine.Peer) (engine.Report, error) {
	var r engine.Report
	err := c.call(ctx, http.MethodGet, to, ReportPath, nil, &r)
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
