// Package ssa is the only place where the manager writes to the API server.
package ssa

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Owner is the field manager of all that the manager writes.
const Owner = "plimsoll-manager"

// Writer writes to the API server.
type Writer struct{}

// New makes a Writer. Reads of live objects come from c (a cache that keeps managedFields); live is asked before an object is
// made that the cache does not know, since the cache is filtered by label.
func New(c client.Client, live client.Reader, registry prometheus.Registerer) (*Writer, error) {
	panic("todo")
}

// Apply makes the live object have all of obj, and only that of what Plimsoll owns in it, by server-side apply. It writes
// nothing if that is so already. An object that belongs to someone else is left alone: the error is then a *ForeignError.
func (w *Writer) Apply(ctx context.Context, obj client.Object) error { panic("todo") }

// Create makes obj if there is none of its name, and never changes it after. An object that belongs to someone else gives a
// *ForeignError.
func (w *Writer) Create(ctx context.Context, obj client.Object) error { panic("todo") }

// Delete removes exactly the live object that was read (by its uid); that it is gone already is no error.
func (w *Writer) Delete(ctx context.Context, obj client.Object) error { panic("todo") }

// Status writes db.Status if it differs from that of seen, the Database as it was read.
func (w *Writer) Status(ctx context.Context, seen *v1.Database, status v1.DatabaseStatus) error {
	panic("todo")
}

// ForeignError says that an object of the wanted name belongs to someone else.
type ForeignError struct{ Kind, Namespace, Name, Holder string }

// Error implements error.
func (e *ForeignError) Error() string { panic("todo") }

// WithOperation marks all writes under ctx with the operation's id; see UserAgent.
func WithOperation(ctx context.Context, id string) context.Context { panic("todo") }

// UserAgent adds the operation's id to the user agent of requests: hand it to rest.Config.Wrap.
func UserAgent(next http.RoundTripper) http.RoundTripper { panic("todo") }
