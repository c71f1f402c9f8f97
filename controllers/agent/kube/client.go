// Package kube reads and updates single Kubernetes objects with next to no memory.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxObject bounds an answer of the API server; etcd refuses more than 1.5 MiB.
const maxObject = 2 << 20

// Client updates single objects. It caches and watches nothing.
type Client struct {
	base  string
	http  *http.Client
	token func() (string, error)
	agent string
}

// New returns a client for the API server at base, such as
// https://10.96.0.1:443. token is asked before each request; userAgent tells
// the API server's audit log who we are.
func New(base string, client *http.Client, token func() (string, error), userAgent string) *Client {
	return &Client{base: strings.TrimSuffix(base, "/"), http: client, token: token, agent: userAgent}
}

// StatusError is a refusal by the API server.
type StatusError struct {
	Code    int
	Reason  string
	Message string
}

// Error returns the API server's words.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message)
}

// IsNotFound says whether the object does not exist.
func IsNotFound(err error) bool { return isCode(err, http.StatusNotFound) }

// IsConflict says whether the object had another resourceVersion.
func IsConflict(err error) bool { return isCode(err, http.StatusConflict) }

func isCode(err error, code int) bool {
	var s *StatusError
	return errors.As(err, &s) && s.Code == code
}

// Get reads the object at path, such as
// /apis/coordination.k8s.io/v1/namespaces/shop/leases/orders.
func (c *Client) Get(ctx context.Context, path string) (Object, error) {
	o, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	return o, nil
}

// Update replaces the object at path. The API server refuses it with a conflict
// unless o carries the current resourceVersion, so o must carry one.
func (c *Client) Update(ctx context.Context, path string, o Object) (Object, error) {
	if o.ResourceVersion() == "" {
		return nil, fmt.Errorf("update %s: without a resourceVersion it would overwrite whatever is there", path)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("update %s: %w", path, err)
	}
	got, err := c.do(ctx, http.MethodPut, path, body)
	if err != nil {
		return nil, fmt.Errorf("update %s: %w", path, err)
	}
	return got, nil
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) (Object, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.agent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // read to the end below
	b, err := io.ReadAll(io.LimitReader(res.Body, maxObject+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxObject:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxObject)
	case res.StatusCode != http.StatusOK:
		return nil, statusError(res.StatusCode, b)
	}
	return decodeObject(b)
}

func statusError(code int, body []byte) error {
	e := &StatusError{Code: code, Reason: http.StatusText(code)}
	var s struct{ Reason, Message string }
	if err := json.Unmarshal(body, &s); err != nil {
		e.Message = "no status in the answer" // a proxy speaks, or nobody
		return e
	}
	e.Message = s.Message
	if s.Reason != "" {
		e.Reason = s.Reason
	}
	return e
}
