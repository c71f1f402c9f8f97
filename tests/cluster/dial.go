package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// DialFunc is how a client's library opens its connections.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// DialFrom returns a way to open connections as a program on a node (or "control") would: a node that is cut off from everybody is still
// reached, by whoever is on it. The address must be a number.
func (c *Cluster) DialFrom(place string) (DialFunc, error) {
	port, err := c.port(place)
	if err != nil {
		return nil, err
	}
	path := "/run/netns/" + prefix + port
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		type result struct {
			conn net.Conn
			err  error
		}
		done := make(chan result, 1)
		go func() {
			// Never unlocked: the runtime ends the thread with the goroutine, and nothing else ever runs in the other network.
			runtime.LockOSThread()
			conn, err := dialIn(ctx, path, network, address)
			done <- result{conn, err}
		}()
		r := <-done // DialContext ends with ctx
		if r.err != nil {
			return nil, fmt.Errorf("connect to %s from %s: %w", address, place, r.err)
		}
		return r.conn, nil
	}, nil
}

func dialIn(ctx context.Context, path, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		return nil, errors.New("not a number: a name would be looked up elsewhere")
	}
	namespace, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("it is powered off: %w", err)
	}
	err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
	if err := errors.Join(err, namespace.Close()); err != nil {
		return nil, err
	}
	// One address: the socket is made by this goroutine, on this thread.
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
