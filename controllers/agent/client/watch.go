package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// WatchReports calls told with each report that the member sends, until the context ends, the connection breaks, or the member
// is silent for longer than it may be. It always returns an error, the context's if that is why; the caller dials again.
func (c *Client) WatchReports(ctx context.Context, to engine.Peer, told func(engine.Report)) error {
	return c.watch(ctx, to, ReportPath+"?watch=true", told)
}

// WatchMembers is WatchReports of the member and of those that it passes on: told is called with the reports of the other members of its
// aim that it hears, in their names, too. An agent that does not know of this passes on none.
func (c *Client) WatchMembers(ctx context.Context, to engine.Peer, told func(engine.Report)) error {
	return c.watch(ctx, to, ReportPath+"?watch=true&"+MembersToo, told)
}

// Where an agent tells its report, and the query of a watch that asks for those of the other members beside it.
const (
	ReportPath = "/v1/report"
	MembersToo = "members=true"
)

func (c *Client) watch(ctx context.Context, to engine.Peer, path string, told func(engine.Report)) error {
	conn, body, err := c.stream(ctx, to, path)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // read only: nothing to lose
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	lines := bufio.NewScanner(body)
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

// lineSize is what is read of a response at a time where it is not content: lines of headers may be longer, those that begin a chunk are not.
const lineSize = 256

// stream sends a request on a connection of its own. A manager holds thousands of those: net/http's would cost two more goroutines and
// three more buffers each.
func (c *Client) stream(ctx context.Context, to engine.Peer, path string) (net.Conn, io.Reader, error) {
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
		resp, err = http.ReadResponse(bufio.NewReaderSize(conn, lineSize), req) //nolint:bodyclose // its connection is closed
	}
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = refused(resp, to.Name)
	}
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, nil, fmt.Errorf("reach the agent of %s: %w", to.Name, err)
	}
	resp.Request, resp.Header = nil, nil // which the body would hold on to
	return conn, resp.Body, nil
}
