package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

const certManagerModule = "github.com/cert-manager/cert-manager"

// CertManagerCRDs returns the CustomResourceDefinitions of the pinned cert-manager, each a YAML document.
func CertManagerCRDs() ([][]byte, error) {
	path, err := Binary("cert-manager.yaml")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the CRDs of cert-manager: %w", err)
	}
	var crds [][]byte
	for part := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---\n")) {
		if len(bytes.TrimSpace(part)) > 0 {
			crds = append(crds, part)
		}
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
