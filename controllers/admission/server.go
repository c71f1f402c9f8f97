package admission

import (
	"crypto/tls"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// ServerOptions of the webhooks' server.
type ServerOptions struct {
	// Host and Port to listen on; all addresses and 9443 by default.
	Host string
	Port int
	// CertDir holds tls.crt and tls.key, as cert-manager or OLM mount them; they are read again when they change.
	CertDir string
	// GetCertificate replaces CertDir, as serving.Keeper's does.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Callers whose certificate is asked for; nil asks for none.
	Callers *Callers
}

// NewServer is a server for Setup, to hand to the manager.
func NewServer(o ServerOptions) webhook.Server {
	options := []func(*tls.Config){func(config *tls.Config) {
		config.MinVersion = tls.VersionTLS12
		config.GetCertificate = o.GetCertificate
		if o.Callers != nil {
			o.Callers.tls(config)
		}
	}}
	return webhook.NewServer(webhook.Options{Host: o.Host, Port: o.Port, CertDir: o.CertDir, TLSOpts: options})
}
