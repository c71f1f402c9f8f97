package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// How a program is sent to an agent.
const (
	ProgramPath    = "/v1/agent"
	ProgramDigest  = "Plimsoll-Digest"
	ProgramVersion = "Plimsoll-Version"
	// ProgramTimeout bounds it, the agent's checks included.
	ProgramTimeout = time.Minute
)

// Program is one of an agent.
type Program struct {
	// Digest as sha256:..., Version for people, and Size in bytes.
	Digest, Version string
	Size            int64
	// Open the content; it is closed by whoever sends it.
	Open func() (io.ReadCloser, error)
}

// Exchange sends the agent of a member another program to become at the next quiet moment; its report tells when it has, or why not.
func (c *Client) Exchange(ctx context.Context, to engine.Peer, p Program) error {
	ctx, cancel := context.WithTimeout(ctx, ProgramTimeout)
	defer cancel()
	file, err := p.Open()
	if err != nil {
		return fmt.Errorf("read the agent's program: %w", err)
	}
	defer func() { _ = file.Close() }() // read only: nothing to lose
	resp, err := c.send(ctx, http.MethodPut, to, ProgramPath, file, func(r *http.Request) {
		r.ContentLength = p.Size
		r.Header.Set(ProgramDigest, p.Digest)
		r.Header.Set(ProgramVersion, p.Version)
	})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
