package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

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
