// Package install puts the operator that this checkout holds on a cluster, by the same commands that the README gives to people.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

const (
	// Namespace of the operator.
	Namespace = "plimsoll-system"
	// localImage is only a name in buildah's storage; the cluster gets the image by digest.
	localImage = "localhost/plimsoll-operator:local"
	nextImage  = "localhost/plimsoll-operator:next"
	// NextVersion is that of a second build of the same checkout, for tests of an upgrade.
	NextVersion = "0.1.1-next"
	// repository is where pods look for it; the cluster serves every registry's names from its own.
	repository = "ghcr.io/plimsoll-dev/plimsoll-operator"
)

// Build builds the operator's image from the checkout at root.
func Build(ctx context.Context, log io.Writer, root string) error {
	_, err := call(ctx, log, root, nil, "make", "image", "IMG="+localImage)
	return err
}

// BuildNext builds the image of the next version. Build after it: the programs in bin/ are those of the newest build.
func BuildNext(ctx context.Context, log io.Writer, root string) error {
	_, err := call(ctx, log, root, nil, "make", "image", "IMG="+nextImage, "VERSION="+NextVersion)
	return err
}

// PushNext gives the image of the next version to the local cluster's registry and returns its name for pods.
func PushNext(ctx context.Context, log io.Writer, root string, c *cluster.Cluster) (string, error) {
	return push(ctx, log, root, c.RegistryAddress(), nextImage, "next")
}

// OnLocal pushes the built image to the local cluster's registry and installs the operator with it.
func OnLocal(ctx context.Context, log io.Writer, root string, c *cluster.Cluster) error {
	image, err := push(ctx, log, root, c.RegistryAddress(), localImage, "local")
	if err != nil {
		return err
	}
	kubectl, err := cluster.Binary("kubectl")
	if err != nil {
		return err
	}
	return Kubectl{Path: kubectl, Kubeconfig: c.Kubeconfig(), Log: log}.Operator(ctx, root, image, Namespace, localFlags()...)
}

// localFlags of the manager on the local cluster: nobody there has a copy of an authority that would take ten minutes to replace.
func localFlags() []string { return []string{"--rotation-trust=20s"} }

// push copies the image to the registry and returns its name by digest: a tag that moves would leave old images on the nodes.
func push(ctx context.Context, log io.Writer, root, registry, local, tag string) (string, error) {
	file, err := os.CreateTemp("", "plimsoll-digest-")
	if err != nil {
		return "", fmt.Errorf("push the operator's image: %w", err)
	}
	defer os.Remove(file.Name())
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("push the operator's image: %w", err)
	}
	_, path, _ := strings.Cut(repository, "/")
	_, err = call(ctx, log, root, nil, "make", "image-push", "IMG="+local, "TO=docker://"+registry+"/"+path+":"+tag, "TLS_VERIFY=false", "DIGEST="+file.Name())
	if err != nil {
		return "", fmt.Errorf("push the operator's image: %w", err)
	}
	digest, err := os.ReadFile(file.Name())
	if err != nil {
		return "", fmt.Errorf("push the operator's image: %w", err)
	}
	return repository + "@" + strings.TrimSpace(string(digest)), nil
}

// Kubectl is a way to a cluster.
type Kubectl struct {
	Path       string
	Kubeconfig string // empty: kubectl's own choice
	Log        io.Writer
}

// Operator installs the operator with an image and flags, and waits until it serves.
func (k Kubectl) Operator(ctx context.Context, root, image, namespace string, flags ...string) error {
	manifests, err := Manifests(ctx, k.Log, root, image, namespace)
	if err != nil {
		return err
	}
	if manifests, err = withFlags(manifests, flags); err != nil {
		return err
	}
	if _, err := k.Run(ctx, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return fmt.Errorf("install the operator: %w", err)
	}
	if err := k.Established(ctx, "databases.plimsoll.dev"); err != nil {
		return fmt.Errorf("wait for the operator: %w", err)
	}
	if _, err := k.Run(ctx, nil, "-n", namespace, "rollout", "status", "deployment/plimsoll-manager", "--timeout=120s"); err != nil {
		return fmt.Errorf("wait for the operator: %w", err)
	}
	return nil
}

// Established waits a minute until the API server serves the kinds of these CRDs. kubectl gives up at once on one that has no conditions
// yet, so it is asked again.
func (k Kubectl) Established(ctx context.Context, crds ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := []string{"wait", "--for=condition=Established", "--timeout=60s"}
	for _, name := range crds {
		args = append(args, "crd/"+name)
	}
	for {
		_, err := k.Run(ctx, nil, args...)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Manifests are what `make deploy` would apply.
func Manifests(ctx context.Context, log io.Writer, root, image, namespace string) ([]byte, error) {
	if _, err := call(ctx, log, root, nil, "make", "build-installer", "IMG="+image, "NAMESPACE="+namespace); err != nil {
		return nil, fmt.Errorf("render the operator's manifests: %w", err)
	}
	manifests, err := os.ReadFile(filepath.Join(root, "dist", "install.yaml"))
	if err != nil {
		return nil, fmt.Errorf("render the operator's manifests: %w", err)
	}
	return manifests, nil
}

// managerArgument is the first of the manager's container in the rendered manifests.
var managerArgument = regexp.MustCompile(`(?m)^( *)- manager$`)

// withFlags puts flags into the rendered manifests.
func withFlags(manifests []byte, flags []string) ([]byte, error) {
	if n := len(managerArgument.FindAll(manifests, -1)); len(flags) > 0 && n != 1 {
		return nil, fmt.Errorf("set %v: the manifests have the manager's command %d times, not once", flags, n)
	}
	for _, flag := range flags {
		manifests = managerArgument.ReplaceAll(manifests, []byte("$0\n$1- "+flag))
	}
	return manifests, nil
}

// Run calls kubectl with stdin and returns what it prints.
func (k Kubectl) Run(ctx context.Context, stdin []byte, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if k.Kubeconfig != "" {
		args = append([]string{"--kubeconfig", k.Kubeconfig}, args...)
	}
	return call(ctx, k.Log, "", stdin, k.Path, args...)
}

// call runs a program, copies what it says to the log and returns its output; an error holds its last line of complaint.
func call(ctx context.Context, log io.Writer, dir string, stdin []byte, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, log), io.MultiWriter(&stderr, log)
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is not installed", name)
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", filepath.Base(name), err, lastLine(stderr.String()))
	}
	return stdout.String(), nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
