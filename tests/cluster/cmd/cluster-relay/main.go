// Command cluster-relay listens on the machine's loopback and carries each connection into another network namespace.
//
// usage: cluster-relay NAMESPACE-FILE LISTEN=TARGET...
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := relay(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster-relay:", err)
		os.Exit(1)
	}
}

func relay(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: cluster-relay NAMESPACE-FILE LISTEN=TARGET")
	}
	listeners := make(map[net.Listener]string)
	for _, pair := range args[1:] {
		listen, target, _ := strings.Cut(pair, "=")
		l, err := net.Listen("tcp", listen)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", listen, err)
		}
		listeners[l] = target
	}
	dial, err := dialerInside(args[0])
	if err != nil {
		return err
	}
	failed := make(chan error)
	for l, target := range listeners {
		go func() { failed <- serve(l, target, dial) }()
	}
	return <-failed
}

// dialer connects to an address inside the namespace.
type dialer func(target string) (net.Conn, error)

type request struct {
	target string
	answer chan<- result
}

type result struct {
	conn net.Conn
	err  error
}

// dialerInside makes all its sockets in one thread that has entered the namespace; a socket belongs to its
// maker's namespace for good, so any thread can use it afterwards.
func dialerInside(namespace string) (dialer, error) {
	file, err := os.Open(namespace)
	if err != nil {
		return nil, fmt.Errorf("open the namespace: %w", err)
	}
	requests, entered := make(chan request), make(chan error)
	go func() {
		runtime.LockOSThread()
		_, _, errno := syscall.RawSyscall(sysSetns, file.Fd(), syscall.CLONE_NEWNET, 0)
		if errno != 0 {
			entered <- fmt.Errorf("enter the namespace: %w", errno)
			return
		}
		entered <- nil
		for r := range requests {
			// No Timeout: with one, the dialer would leave this thread. Inside, an address that is down refuses or is unreachable soon.
			conn, err := net.Dial("tcp", r.target)
			r.answer <- result{conn, err}
		}
	}()
	if err := <-entered; err != nil {
		return nil, err
	}
	return func(target string) (net.Conn, error) {
		answer := make(chan result, 1)
		requests <- request{target, answer}
		r := <-answer
		return r.conn, r.err
	}, nil
}

// sysSetns is the number of setns on amd64, which the frozen package syscall lacks.
const sysSetns = 308

func serve(l net.Listener, target string, dial dialer) error {
	for {
		outside, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
		go func() {
			defer outside.Close()
			inside, err := dial(target)
			if err != nil {
				fmt.Fprintln(os.Stderr, time.Now().Format(time.RFC3339), err)
				return
			}
			defer inside.Close()
			join(outside.(*net.TCPConn), inside.(*net.TCPConn))
		}()
	}
}

// join copies both ways and passes on each side's end of data, as kubectl exec needs.
func join(a, b *net.TCPConn) {
	done := make(chan struct{}, 2)
	pass := func(to, from *net.TCPConn) {
		_, _ = io.Copy(to, from) // either side may break the connection; that is its way to end it
		_ = to.CloseWrite()      // one that is gone already is closed
		done <- struct{}{}
	}
	go pass(a, b)
	go pass(b, a)
	<-done
	<-done
}
