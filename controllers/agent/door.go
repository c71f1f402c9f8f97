package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// doors are the ports that an agent serves on: members and the manager, and the kubelet.
const doors = 2

// door is a port that is served. It can be shut for a moment and opened again, or be left to another program: who knocks meanwhile waits.
type door struct {
	listener *net.TCPListener
	// build a server; those who watch leave once closing is closed.
	build func(closing <-chan struct{}) *http.Server
	serve func(*http.Server, net.Listener) error
	// fail is told when serving ended by itself.
	fail func(error)

	server  *http.Server
	closing chan struct{}
	done    sync.WaitGroup
}

// doors of a service and of the kubelet's probes, on the listeners that a program before left, or on new ones.
func (s *service) doors(listeners []*net.TCPListener, probes http.Handler, fail func(error)) ([]*door, error) {
	for _, port := range []int{s.cfg.AgentPort, s.cfg.HealthPort}[len(listeners):] {
		l, err := listen(s.cfg.Host, port)
		if err != nil {
			for _, other := range listeners {
				_ = other.Close() // the port that is taken is what counts
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return []*door{
		{listener: listeners[0], build: s.server, fail: fail, serve: func(v *http.Server, l net.Listener) error { return v.ServeTLS(l, "", "") }},
		{listener: listeners[1], build: func(<-chan struct{}) *http.Server { return probeServer(probes, s.log) }, fail: fail, serve: (*http.Server).Serve},
	}, nil
}

// open begins to serve.
func (d *door) open() error {
	f, err := d.listener.File() // a copy: the port outlives the server that closes it
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	l, err := net.FileListener(f)
	_ = f.Close() // the listener has its own
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	d.closing = make(chan struct{})
	v := d.build(d.closing)
	d.server = v
	d.done.Go(func() {
		if err := d.serve(v, netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			d.fail(err)
		}
	})
	return nil
}

// shut stops serving. Requests that are under way may end within the patience; new ones wait at the port.
func (d *door) shut(patience time.Duration) {
	if d.server == nil {
		return
	}
	close(d.closing)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if d.server.Shutdown(ctx) != nil {
		_ = d.server.Close() // it took too long: who asked asks again
	}
	d.done.Wait()
	d.server = nil
}

// leave the port for good.
func (d *door) leave() {
	if d.server != nil {
		_ = d.server.Close() // those who watch dial another member or again
		d.done.Wait()
	}
	_ = d.listener.Close() // nobody serves on it any more
}

// listen on a port.
func listen(host string, port int) (*net.TCPListener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port))) //nolint:noctx // at the start, with nobody to call it off
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listen on port %d: not by TCP", port)
	}
	return tcp, nil
}
