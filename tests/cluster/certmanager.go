package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const certManagerModule = "github.com/cert-manager/cert-manager"

// CertManagerCRDs returns the CustomResourceDefinitions of the pinned cert-manager, each a YAML document.
func CertManagerCRDs(ctx context.Context) ([][]byte, error) {
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // the module may have to be fetched again
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", certManagerModule)
	cmd.Dir, cmd.Env = filepath.Join(root, "tests", "cluster", "binaries", "certmanager"), append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", certManagerModule, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(raw, &module); err != nil {
		return nil, fmt.Errorf("find the files of %s: %w", certManagerModule, err)
	}
	names, err := filepath.Glob(filepath.Join(module.Dir, "deploy", "crds", "*.yaml"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("find the CRDs of %s in %s: %d files, %w", certManagerModule, module.Dir, len(names), err)
	}
	var crds [][]byte
	for _, name := range names {
		crd, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the CRDs of cert-manager: %w", err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// CertManager is cert-manager's controllers as a process of this machine.
type CertManager struct{ *child }

// StartCertManager runs cert-manager's controllers, its cainjector among them, against the API server of a kubeconfig. Its
// CustomResourceDefinitions must be installed. It ends with Stop, with ctx, or with this process; its log is cert-manager.log in dir.
func StartCertManager(ctx context.Context, dir, kubeconfig string) (*CertManager, error) {
	program, err := Binary("cert-manager")
	if err != nil {
		return nil, err
	}
	c, err := startChild(ctx, filepath.Join(dir, "cert-manager.log"), program, []string{"--kubeconfig=" + kubeconfig, "--logtostderr"})
	if err != nil {
		return nil, err
	}
	return &CertManager{c}, nil
}

// Stop ends it at once.
func (c *CertManager) Stop() { c.stop() }

// Log returns the end of what it said.
func (c *CertManager) Log() string { return tail(c.log, 8000) }
