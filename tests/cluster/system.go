package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// run executes a short command and returns its output. A command that hangs in the kernel (a frozen file system)
// cannot be killed, so at the end of the time it is left behind and the error says so.
func run(ctx context.Context, input, name string, args ...string) (string, error) {
	return runFor(ctx, 60*time.Second, input, name, args...)
}

func runFor(ctx context.Context, limit time.Duration, input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	cmd.WaitDelay = time.Second
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	select {
	case err := <-ended:
		if err != nil {
			return stdout.String(), fmt.Errorf("%s: %w: %s", shorten(name, args), err, strings.TrimSpace(stderr.String()))
		}
		return stdout.String(), nil
	case <-ctx.Done():
	}
	select { // the kill needs a moment
	case <-ended:
		return "", fmt.Errorf("%s: %w", shorten(name, args), ctx.Err())
	case <-time.After(2 * time.Second):
		return "", fmt.Errorf("%s: hangs in the kernel: %w", shorten(name, args), ctx.Err())
	}
}

func shorten(name string, args []string) string {
	const enough = 160
	s := name + " " + strings.Join(args, " ")
	if len(s) > enough {
		return s[:enough] + "…"
	}
	return s
}

// wait calls check until it returns nil, and gives its last error at the end of the time.
func wait(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: gave up after %s: %w", what, time.Since(start).Round(time.Second), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// each runs f for 1..n at once and joins the errors.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = f(i + 1) })
	}
	group.Wait()
	return errors.Join(errs...)
}
