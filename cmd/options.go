package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
)

// options are the flags of the manager.
type options struct {
	agentImage, postgresImage string
	agentProgram              string
	postgresUser              int64
	operatorNamespace         string
	namespaces                []string
	concurrent                int
	rotationTrust             time.Duration
	logLevel                  string

	elect                                    bool
	electionID                               string
	leaseDuration, renewDeadline, retryEvery time.Duration

	metricsAddress, probeAddress, pprofAddress string
	metricsSecure                              bool

	webhook             bool
	webhookPort         int
	webhookCertDir      string
	webhookClientCA     string
	webhookClientNames  []string
	webhookService      string
	webhookValidating   string
	webhookMutating     string
	webhookSecret       string
	webhookDefinitions  []string
	webhookSelfManaging string
}

func managerCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Runs the operator",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.agentImage, "agent-image", first(os.Getenv("RELATED_IMAGE_AGENT"), os.Getenv("RELATED_IMAGE_OPERATOR")),
		"the operator's own image, from which the agent is copied into database pods; by default that of RELATED_IMAGE_AGENT")
	f.StringVar(&o.agentProgram, "agent-program", "/plimsoll-agent",
		"the agent that running instances are given under their servers, for this architecture; those of others lie beside it, as /plimsoll-agent-arm64; empty to give them none")
	f.StringVar(&o.postgresImage, "postgres-image", os.Getenv("PLIMSOLL_POSTGRES_IMAGE"),
		"default image of PostgreSQL, in which %s stands for spec.version; by default the official one")
	f.Int64Var(&o.postgresUser, "postgres-user", 0, "numeric user that the default image of PostgreSQL wants; 999 by default")
	f.StringVar(&o.operatorNamespace, "operator-namespace", first(os.Getenv("POD_NAMESPACE"), "plimsoll-system"), "the namespace that the operator runs in")
	f.StringSliceVar(&o.namespaces, "namespace", nil, "look after these namespaces only; all by default")
	f.IntVar(&o.concurrent, "max-concurrent-reconciles", 10, "how many Databases are worked on at a time")
	f.DurationVar(&o.rotationTrust, "rotation-trust", certificate.DefaultPolicy().QuickOverlap,
		"how long a new authority is trusted before it signs when a person asks for new certificates: the time for clients to read ca.crt again")
	f.StringVar(&o.logLevel, "log-level", "info", "info, or debug for everything")

	f.BoolVar(&o.elect, "leader-elect", true, "let only one of several replicas act; with false nobody notices that etcd was restored from a backup, and the manager must be restarted then")
	f.StringVar(&o.electionID, "leader-elect-id", "plimsoll-manager", "name of the Lease by which they agree")
	// The next acts within 5 s after the end of one that could release nothing: two looks at the Lease, of up to 2.2 pauses each, and its
	// duration, which counts in whole seconds. The price is a write of that Lease each 0.4 s, and that an API server which answers nothing
	// for 2 s ends the acting manager: see docs/decisions/0011.
	f.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 3*time.Second, "how long the others wait for one that is silent, in whole seconds")
	f.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 2*time.Second, "how long the acting one tries to renew before it gives up")
	f.DurationVar(&o.retryEvery, "leader-elect-retry-period", 400*time.Millisecond, "the pause between tries")

	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "where metrics are served; 0 for nowhere")
	f.BoolVar(&o.metricsSecure, "metrics-secure", true, "serve metrics over HTTPS, to those whom the API server lets get /metrics")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served")
	f.StringVar(&o.pprofAddress, "pprof-bind-address", "", "where profiles are served, on loopback, as 127.0.0.1:6060; nowhere by default")

	f.BoolVar(&o.webhook, "webhook", true, "serve the admission and conversion webhooks")
	f.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the webhooks")
	f.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs",
		"directory with tls.crt and tls.key of the webhooks, as cert-manager and OLM mount it")
	f.StringVar(&o.webhookSelfManaging, "webhook-self-managed", "auto",
		"keep the webhooks' certificate in a Secret and their registrations: true, false, or auto for when the directory holds none")
	f.StringVar(&o.webhookClientCA, "webhook-client-ca-file", "", "authority of the API server's client certificate; set it to admit nobody else")
	f.StringSliceVar(&o.webhookClientNames, "webhook-client-names", nil, "common names of the API server's client certificate; any by default")
	f.StringVar(&o.webhookService, "webhook-service", "plimsoll-webhook", "the Service in front of the webhooks")
	f.StringVar(&o.webhookSecret, "webhook-secret", "plimsoll-webhook-certificate", "the Secret for a certificate that the operator keeps itself")
	f.StringVar(&o.webhookValidating, "webhook-validating", "plimsoll-validating", "the ValidatingWebhookConfiguration")
	f.StringVar(&o.webhookMutating, "webhook-mutating", "plimsoll-mutating", "the MutatingWebhookConfiguration")
	f.StringSliceVar(&o.webhookDefinitions, "webhook-crds", []string{"databases.plimsoll.dev"}, "the CustomResourceDefinitions with a conversion webhook")
	return cmd
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// A new authority that signs at once would be known to nobody, and one that waits for days is what a rotation without a request is.
const (
	minRotationTrust = 10 * time.Second
	maxRotationTrust = 7 * 24 * time.Hour
)

// check says what cannot work, before anything has started.
func (o options) check() error {
	switch {
	case o.agentImage == "":
		return errors.New("--agent-image is empty: name the operator's own image there or in the variable RELATED_IMAGE_AGENT")
	case o.concurrent < 1 || o.concurrent > 1000:
		return fmt.Errorf("--max-concurrent-reconciles is %d: give 1 to 1000", o.concurrent)
	case o.rotationTrust < minRotationTrust || o.rotationTrust > maxRotationTrust:
		return fmt.Errorf("--rotation-trust is %s: give %s to %s", o.rotationTrust, minRotationTrust, maxRotationTrust)
	case o.elect && (o.leaseDuration.Truncate(time.Second) <= o.renewDeadline || o.renewDeadline <= 12*o.retryEvery/10):
		return fmt.Errorf("leader election: the lease duration %s must, in whole seconds, be longer than the renew deadline %s, and that longer than 1.2 retry periods of %s",
			o.leaseDuration, o.renewDeadline, o.retryEvery)
	case o.pprofAddress != "" && !onLoopback(o.pprofAddress):
		return fmt.Errorf("--pprof-bind-address is %q: give a loopback address, as 127.0.0.1:6060, and reach it by kubectl port-forward: a profile shows what the memory holds", o.pprofAddress)
	case o.logLevel != "info" && o.logLevel != "debug":
		return fmt.Errorf("--log-level is %q: give info or debug", o.logLevel)
	case o.webhookSelfManaging != "auto" && o.webhookSelfManaging != "true" && o.webhookSelfManaging != "false":
		return fmt.Errorf("--webhook-self-managed is %q: give true, false or auto", o.webhookSelfManaging)
	}
	return nil
}

func onLoopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().IsLoopback()
}
