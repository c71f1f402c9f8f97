package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// pusher uploads image layouts to a registry by the distribution protocol, as far as our own registry needs it.
type pusher struct {
	base   string // http://127.0.0.1:PORT
	client *http.Client
}

func (c *Cluster) pusher() pusher {
	return pusher{base: fmt.Sprintf("http://127.0.0.1:%d", c.state.RegPort), client: &http.Client{Timeout: 5 * time.Minute}}
}

// RegistryAddress returns where programs outside the cluster reach its registry (plain HTTP); images pushed there
// as NAME are NAME, docker.io/library/NAME and registry.plimsoll.test:5000/NAME to pods.
func (c *Cluster) RegistryAddress() string { return fmt.Sprintf("127.0.0.1:%d", c.state.RegPort) }

// push uploads a layout as NAME:TAG unless it is there, and tells whether it did.
func (p pusher) push(ctx context.Context, dir, ref string) (bool, error) {
	name, tag, ok := strings.Cut(ref, ":")
	if !ok {
		return false, fmt.Errorf("push %s: it has no tag", ref)
	}
	m, top, text, err := readManifest(dir)
	if err != nil {
		return false, err
	}
	at := p.base + "/v2/" + name + "/manifests/" + tag
	head, err := p.do(ctx, http.MethodHead, at, "", http.NoBody, 0) //nolint:bodyclose // do has read and closed it
	if err != nil {
		return false, err
	}
	if head.Header.Get("Docker-Content-Digest") == top.Digest {
		return false, nil
	}
	for _, blob := range append(m.Layers, m.Config) {
		if err := p.blob(ctx, dir, name, blob); err != nil {
			return false, fmt.Errorf("push %s: %w", ref, err)
		}
	}
	put, err := p.do(ctx, http.MethodPut, at, top.MediaType, bytes.NewReader(text), int64(len(text))) //nolint:bodyclose // do has read and closed it
	if err != nil {
		return false, fmt.Errorf("push %s: %w", ref, err)
	}
	if put.StatusCode != http.StatusCreated {
		return false, fmt.Errorf("push %s: the registry answered %s", ref, put.Status)
	}
	return true, nil
}

func (p pusher) blob(ctx context.Context, dir, name string, d descriptor) error {
	head, err := p.do(ctx, http.MethodHead, p.base+"/v2/"+name+"/blobs/"+d.Digest, "", http.NoBody, 0) //nolint:bodyclose // do has read and closed it
	if err != nil || head.StatusCode == http.StatusOK {
		return err
	}
	start, err := p.do(ctx, http.MethodPost, p.base+"/v2/"+name+"/blobs/uploads/", "", http.NoBody, 0) //nolint:bodyclose // do has read and closed it
	if err != nil {
		return err
	}
	location, err := url.Parse(start.Header.Get("Location"))
	if err != nil || start.StatusCode != http.StatusAccepted {
		return fmt.Errorf("begin blob %s: the registry answered %s: %w", d.Digest, start.Status, err)
	}
	query := location.Query()
	query.Set("digest", d.Digest)
	file, err := os.Open(blobPath(dir, d.Digest))
	if err != nil {
		return err
	}
	defer file.Close()
	// The Location names the address that the registry sees; ours is the relay's.
	put, err := p.do(ctx, http.MethodPut, p.base+location.Path+"?"+query.Encode(), "application/octet-stream", file, d.Size) //nolint:bodyclose // do has read and closed it
	if err != nil {
		return err
	}
	if put.StatusCode != http.StatusCreated {
		return fmt.Errorf("upload blob %s: the registry answered %s", d.Digest, put.Status)
	}
	return nil
}

// do sends one request and reads away its body, so that the connection can be used again.
func (p pusher) do(ctx context.Context, method, at, kind string, body io.Reader, size int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return nil, err
	}
	request.ContentLength = size
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	request.Header.Set("Accept", typeManifest)
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)); err != nil {
		return nil, err
	}
	return response, nil
}
