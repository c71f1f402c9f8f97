package ssa

import (
	"context"
	"net/http"
)

type operationKey struct{}

// WithOperation marks all requests under ctx with the operation's id; see UserAgent.
func WithOperation(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, operationKey{}, id)
}

// UserAgent adds the operation's id to the user agent of requests, so that the API server's audit log leads back to one pass
// of the manager. Hand it to rest.Config.Wrap.
func UserAgent(next http.RoundTripper) http.RoundTripper {
	return agent{next: next}
}

type agent struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a agent) RoundTrip(request *http.Request) (*http.Response, error) {
	id, ok := request.Context().Value(operationKey{}).(string)
	if !ok || id == "" {
		return a.next.RoundTrip(request)
	}
	// A round tripper may not change the request that it was given.
	marked := request.Clone(request.Context())
	marked.Header.Set("User-Agent", request.Header.Get("User-Agent")+" operation/"+id)
	return a.next.RoundTrip(marked)
}

// WrappedRoundTripper lets client-go look through this one: it complains of each that it cannot, for every watch that ends.
func (a agent) WrappedRoundTripper() http.RoundTripper { return a.next }
