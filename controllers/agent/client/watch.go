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
