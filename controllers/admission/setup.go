// Package admission serves the webhooks of Plimsoll's kinds: it translates a request, asks policy, and answers.
//
// The validating webhook may fail open: the schema holds every rule whose breach would be dangerous, and the reconciler asks
// policy again before it acts. So a dead operator keeps nobody from deleting a Database or from scaling it.
//
// +kubebuilder:webhookconfiguration:mutating=false,name=plimsoll-validating
// +kubebuilder:webhookconfiguration:mutating=true,name=plimsoll-mutating
package admission

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
)

// Paths of the webhooks.
const (
	ValidatePath = "/validate-plimsoll-dev-v1-database"
	MutatePath   = "/mutate-plimsoll-dev-v1-database"
	ConvertPath  = "/convert"
)

// lookUp bounds the reading of a namespace, well inside the API server's patience with the webhook.
const lookUp = 2 * time.Second

// maxConversionBytes bounds the body of a conversion: a page of 500 objects at the API server's largest size does not fit, one of
// 500 Databases at a size that occurs does, ten times over.
const maxConversionBytes = 64 << 20

// Options of the webhooks.
type Options struct {
	// Engines that this operator knows.
	Engines policy.Engines
	// Namespaces is where a namespace's labels are read, by name and metadata only. By default the manager's uncached reader:
	// it needs the right to get namespaces, and neither to list nor to watch them.
	Namespaces client.Reader
	// Databases is where the Database is read whose scale is changed; by default the manager's uncached reader.
	Databases client.Reader
	// Callers is who may ask for admission; nil admits anyone who reaches the port.
	Callers *Callers
}

// Setup registers the webhooks with the manager's webhook server. Make that server with NewServer.
func Setup(mgr manager.Manager, o Options) error {
	if o.Namespaces == nil {
		o.Namespaces = mgr.GetAPIReader()
	}
	if o.Databases == nil {
		o.Databases = mgr.GetAPIReader()
	}
	return Register(mgr.GetWebhookServer(), mgr.GetScheme(), o)
}

// Register registers the webhooks with a server.
func Register(server webhook.Server, scheme *runtime.Scheme, o Options) error {
	convert, err := conversionHandler()
	if err != nil {
		return fmt.Errorf("set up the conversion webhook: %w", err)
	}
	review := func(h ctrladmission.Handler) http.Handler {
		return o.Callers.guard(&ctrladmission.Webhook{Handler: h})
	}
	decoder := ctrladmission.NewDecoder(scheme)
	server.Register(ValidatePath, review(validator{decoder: decoder, engines: o.Engines, databases: o.Databases}))
	server.Register(MutatePath, review(regions{namespaces: o.Namespaces}))
	// Not guarded: an API server shows no certificate when it asks for a conversion, and a conversion tells nothing.
	server.Register(ConvertPath, http.MaxBytesHandler(convert, maxConversionBytes))
	return nil
}
