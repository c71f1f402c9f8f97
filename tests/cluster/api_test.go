package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestStartAPIServesTwoAtOnceAndEndsWithStop(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var apis []*API
	for range 2 {
		start := time.Now()
		api, err := StartAPI(ctx, t.TempDir())
		if errors.Is(err, ErrNotBuilt) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(api.Stop)
		t.Logf("ready in %s", time.Since(start).Round(time.Millisecond))
		apis = append(apis, api)
	}
	for i, api := range apis {
		if err := createNamespace(ctx, api, fmt.Sprintf("only-%d", i)); err != nil {
			t.Error(err)
		}
	}
	client, err := apis[0].client()
	if err != nil {
		t.Fatal(err)
	}
	if get(ctx, client, apis[0].Host+"/api/v1/namespaces/only-1") == nil {
		t.Error("the first server knows a namespace of the second")
	}
	apis[0].Stop()
	if get(ctx, client, apis[0].Host+"/readyz") == nil {
		t.Error("a stopped server still answers")
	}
}

func createNamespace(ctx context.Context, api *API, name string) error {
	client, err := api.client()
	if err != nil {
		return err
	}
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, api.Host+"/api/v1/namespaces", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("create namespace %s: %s", name, response.Status)
	}
	return nil
}
