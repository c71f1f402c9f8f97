package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command runs a program of the checkout as a process group of its own, so that nothing of it outlives its time.
func (w *workspace) command(ctx context.Context, out io.Writer, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.root, out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 20 * time.Second
	// Ask first: the cluster tool and go test leave things tidy when they are asked.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		if killed := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); killed != nil && !errors.Is(killed, syscall.ESRCH) {
			err = errors.Join(err, killed)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", brief(name, args), err)
	}
	return nil
}

func brief(name string, args []string) string {
	const enough = 80
	text := name + " " + strings.Join(args, " ")
	if len(text) > enough {
		return text[:enough] + "…"
	}
	return text
}

// cluster runs the cluster tool, which is built once so that no later call waits for the compiler.
func (w *workspace) cluster(ctx context.Context, out io.Writer, args ...string) error {
	return w.command(ctx, out, nil, w.tool(), args...)
}

func (w *workspace) tool() string { return w.tmp + "/cluster" }
