package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// maxStatus bounds an answer.
const maxStatus = 64 << 10

// HTTP asks probes by HTTP, without credentials: what they say is no secret, and whoever answered in their place could only lie.
type HTTP struct{ client *http.Client }

// NewHTTP makes an Asker.
func NewHTTP() *HTTP {
	return &HTTP{&http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a probe does not redirect") },
	}}
}

// Ask implements Asker.
func (h *HTTP) Ask(ctx context.Context, pod *corev1.Pod) (v1.NodeStatus, error) {
	at := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(v1.ProbeStatusPort))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+v1.ProbeStatusPath, nil)
	if err != nil {
		return v1.NodeStatus{}, fmt.Errorf("ask pod %s: %w", pod.Name, err)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return v1.NodeStatus{}, fmt.Errorf("ask pod %s: %w", pod.Name, err)
	}
	defer func() { _ = response.Body.Close() }() // read only: nothing to lose
	if response.StatusCode != http.StatusOK {
		return v1.NodeStatus{}, fmt.Errorf("pod %s answers %s", pod.Name, response.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err != nil {
		return v1.NodeStatus{}, fmt.Errorf("read the answer of pod %s: %w", pod.Name, err)
	}
	var status v1.NodeStatus
	if err := json.Unmarshal(raw, &status); err != nil {
		return v1.NodeStatus{}, fmt.Errorf("read the answer of pod %s: %w", pod.Name, err)
	}
	return status, nil
}
