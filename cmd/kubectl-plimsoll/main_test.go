package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheBuiltPlugin calls the program as kubectl and people do.
func TestTheBuiltPlugin(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile builds it, for the cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	nobody := filepath.Join(t.TempDir(), "kubeconfig")
	const silent = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(nobody, []byte(silent), 0o600); err != nil {
		t.Fatal(err)
	}
	const help = "Look after the databases that Plimsoll runs\n\nUsage:\n  kubectl plimsoll [command]\n"
	for sentence, row := range map[string]struct {
		args, kubeconfig string
		code             int
		out, err         string // how stdout and stderr begin
	}{
		"help goes to stdout, under the name that people type": {args: "--help", out: help},
		"alone it helps":                        {out: help},
		"an unknown command names the next one": {args: "swithcover orders", code: 1, err: `error: unknown command "swithcover" for "kubectl plimsoll"; Did you mean this?; switchover` + "\n"},
		"an unknown flag is named":              {args: "status --wach", code: 1, err: "error: unknown flag: --wach\n"},
		"without a kubeconfig one line says so": {args: "status orders", code: 1, err: "error: there is no kubeconfig, or it names no cluster: set KUBECONFIG, or give --kubeconfig\n"},
		"an API server that is not there is named": {
			args: "status orders", kubeconfig: nobody, code: 1, err: `error: read Database orders in namespace default: Get "https://127.0.0.1:1/`,
		},
		"its own version is told without an API server, too": {args: "version", kubeconfig: nobody, code: 1, out: "plugin    dev (go", err: "error: ask the cluster for its version: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, bin, strings.Fields(row.args)...)
			// No kubeconfig, and no service account's either.
			cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + row.kubeconfig}
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			err := cmd.Run()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != row.code {
				t.Errorf("exit code %d, want %d", code, row.code)
			}
			if !strings.HasPrefix(out.String(), row.out) || row.out == "" && out.Len() > 0 {
				t.Errorf("stdout is\n%s\nwant\n%s", out.String(), row.out)
			}
			if !strings.HasPrefix(errs.String(), row.err) || row.err == "" && errs.Len() > 0 || strings.Count(errs.String(), "\n") > 1 {
				t.Errorf("stderr is\n%s\nwant one line\n%s", errs.String(), row.err)
			}
		})
	}
}
