package api

import (
	"encoding/json"
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	// maxAnnotations is what the API server takes of an object's annotations together. Client-side apply keeps the whole object in one.
	maxAnnotations = 256 << 10
	// headroom is for what a release adds to the definition: the conversion webhook with its authority, labels and annotations.
	headroom = 32 << 10
)

// TestTheDefinitionFitsClientSideApply: `kubectl apply -f` without --server-side, as many tools do, copies the definition into an
// annotation.
func TestTheDefinitionFitsClientSideApply(t *testing.T) {
	raw, err := os.ReadFile("../../config/crd/bases/plimsoll.dev_databases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	applied, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the definition is %d bytes of JSON, and %d are free", len(applied), maxAnnotations-len(applied))
	if most := maxAnnotations - headroom; len(applied) > most {
		t.Errorf("the definition is %d bytes of JSON, %d more than the %d that leave room: most of it is spec.scheduling.affinity, once a version; "+
			"drop the descriptions of Kubernetes' own types (controller-gen crd:maxDescLen), or a version that is no longer served",
			len(applied), len(applied)-most, most)
	}
}
