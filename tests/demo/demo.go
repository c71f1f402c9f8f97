package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/install"
)

const (
	namespace = "plimsoll-demo"
	name      = "orders"
	sample    = "config/samples/plimsoll.dev_v1_database.yaml"
)

// demo is one run.
type demo struct {
	options
	root, cache string
	log         *os.File
	progress    *progress
}

func newDemo(o options) (*demo, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the checkout: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, sample)); err != nil {
		return nil, errors.New("this is not the root of the checkout; change to it and run: make demo")
	}
	cache, err := cluster.CacheDir()
	if err != nil {
		return nil, err
	}
	if o.cluster != "local" && o.cluster != "current" {
		return nil, fmt.Errorf("there is no cluster %q; say CLUSTER=current for that of your kubeconfig, or nothing for a local one", o.cluster)
	}
	dir := filepath.Join(cache, "logs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of logs: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "demo.log"))
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return &demo{options: o, root: root, cache: cache, log: log, progress: newProgress(os.Stdout)}, nil
}

func (d *demo) up(ctx context.Context) error {
	kubectl, err := d.operator(ctx)
	if err != nil {
		return err
	}
	err = d.progress.do("Database "+name, func(detail func(string)) error { return d.database(ctx, kubectl, detail) })
	if err != nil {
		return err
	}
	return d.tell(ctx, kubectl)
}

// operator is on a cluster when it returns.
func (d *demo) operator(ctx context.Context) (install.Kubectl, error) {
	if d.cluster == "current" {
		return d.onCurrent(ctx)
	}
	return d.onLocal(ctx)
}

func (d *demo) onCurrent(ctx context.Context) (install.Kubectl, error) {
	k := install.Kubectl{Path: "kubectl", Log: d.log}
	if d.image == "" {
		return k, errors.New("a cluster of your own pulls the operator's image: make docker-build docker-push IMG=registry/you/plimsoll-operator:tag, then make demo CLUSTER=current IMG=that")
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		return k, errors.New("kubectl is not installed; install it, or leave CLUSTER=current away to get a local cluster with it")
	}
	if _, err := k.Run(ctx, nil, "version", "--request-timeout=10s"); err != nil {
		return k, fmt.Errorf("the cluster of the current kubeconfig does not answer; choose another with kubectl config use-context: %w", err)
	}
	classes, err := k.Run(ctx, nil, "get", "storageclasses", "-o", `jsonpath={.items[*].metadata.annotations.storageclass\.kubernetes\.io/is-default-class}`)
	if err != nil {
		return k, fmt.Errorf("look for a default StorageClass: %w", err)
	}
	if !strings.Contains(classes, "true") {
		return k, errors.New("the cluster has no default StorageClass; mark one: kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true")
	}
	err = d.steps([]work{
		{"programs", func(detail func(string)) error { return d.call(ctx, detail, "make", "build") }},
		{"operator", func(func(string)) error { return k.Operator(ctx, d.root, d.image, d.namespace) }},
	})
	return k, err
}

func (d *demo) onLocal(ctx context.Context) (install.Kubectl, error) {
	if err := fits(d.cache); err != nil {
		return install.Kubectl{}, err
	}
	tool := filepath.Join(d.cache, "run", "cluster")
	err := d.steps([]work{
		{"packages", func(detail func(string)) error {
			say := func(format string, args ...any) { detail(fmt.Sprintf(format, args...)) }
			return cluster.InstallPackages(ctx, say, map[string]string{"make": "/usr/bin/make", "buildah": "/usr/bin/buildah", "ca-certificates": "/etc/ssl/certs/ca-certificates.crt"})
		}},
		{"Kubernetes from source (once: about half an hour)", func(detail func(string)) error {
			if err := d.call(ctx, detail, "go", "build", "-buildvcs=false", "-o", tool, "./tests/cluster/cmd/cluster"); err != nil {
				return err
			}
			return d.call(ctx, detail, tool, "build")
		}},
		{"database images", func(detail func(string)) error { return d.call(ctx, detail, tool, "images") }},
		{"operator image", func(func(string)) error { return install.Build(ctx, d.log, d.root) }},
		{"cluster of three nodes", func(detail func(string)) error { return d.call(ctx, detail, tool, "up") }},
	})
	if err != nil {
		return install.Kubectl{}, err
	}
	c, err := cluster.Open()
	if err != nil {
		return install.Kubectl{}, err
	}
	kubectl, err := cluster.Binary("kubectl")
	if err != nil {
		return install.Kubectl{}, err
	}
	k := install.Kubectl{Path: kubectl, Kubeconfig: c.Kubeconfig(), Log: d.log}
	err = d.progress.do("operator", func(func(string)) error { return install.OnLocal(ctx, d.log, d.root, c) })
	return k, err
}

// down takes everything away again.
func (d *demo) down(ctx context.Context) error {
	if d.cluster == "current" {
		return d.progress.do("taking the demo off the cluster", func(func(string)) error { return d.offCurrent(ctx) })
	}
	return d.progress.do("taking the cluster down", func(func(string)) error {
		say := func(format string, args ...any) { fmt.Fprintf(d.log, format+"\n", args...) }
		if err := cluster.Down(ctx, cluster.KeepImages, say); err != nil {
			return err
		}
		// What was built stays in the cache alone.
		return errors.Join(os.RemoveAll(filepath.Join(d.root, "bin")), os.RemoveAll(filepath.Join(d.root, "dist")))
	})
}

// offCurrent takes the demo off a cluster of somebody's own, where the operator may have come to serve more than the demo: with its
// CRD every Database goes, whosever it is.
func (d *demo) offCurrent(ctx context.Context) error {
	k := install.Kubectl{Path: "kubectl", Log: d.log}
	others, err := k.Databases(ctx)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(db string) bool { return strings.HasPrefix(db, namespace+"/") })
	if len(others) > 0 {
		return fmt.Errorf("nothing was removed: the operator's CRD would go, and with it Databases that are not the demo's: %s. "+
			"To remove the demo alone: kubectl delete namespace %s. To remove the operator too, delete those Databases first", strings.Join(others, ", "), namespace)
	}
	if _, err := k.Run(ctx, nil, "delete", "namespace", namespace, "--ignore-not-found", "--timeout=3m"); err != nil {
		return fmt.Errorf("delete namespace %s: %w", namespace, err)
	}
	return k.RemoveOperator(ctx, d.root, d.namespace)
}

// work is one step with its name.
type work struct {
	name string
	do   func(detail func(string)) error
}

func (d *demo) steps(all []work) error {
	for _, w := range all {
		if err := d.progress.do(w.name, w.do); err != nil {
			return fmt.Errorf("%s: %w (log: %s)", w.name, err, d.log.Name())
		}
	}
	return nil
}

// call runs a program of the checkout. Its newest line is the detail that a waiting person sees; all goes to the log.
func (d *demo) call(ctx context.Context, detail func(string), program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = d.root
	last := &lastLine{to: detail}
	cmd.Stdout = io.MultiWriter(last, d.log)
	cmd.Stderr = cmd.Stdout
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, last.text)
	}
	return nil
}
