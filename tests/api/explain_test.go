package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
)

// described is the part of an OpenAPI v3 schema that explain reads.
type described struct {
	Description          string               `json:"description"`
	Properties           map[string]described `json:"properties"`
	Items                *described           `json:"items"`
	AdditionalProperties *described           `json:"additionalProperties"`
	AllOf                []described          `json:"allOf"`
	Kinds                []map[string]string  `json:"x-kubernetes-group-version-kind"`
	Ref                  string               `json:"$ref"`
}

// TestExplainDescribesEveryField walks the schemas that the API server publishes.
func TestExplainDescribesEveryField(t *testing.T) {
	c, err := discovery.NewDiscoveryClientForConfig(shared.config)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := c.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions() {
		group, ok := paths["apis/plimsoll.dev/"+version]
		if !ok {
			t.Fatalf("no schema is published for %s", version)
		}
		raw, err := group.Schema("application/json")
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Components struct {
				Schemas map[string]described `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		fields := 0
		for _, schema := range doc.Components.Schemas {
			if len(schema.Kinds) == 0 || schema.Kinds[0]["kind"] != "Database" {
				continue
			}
			for _, at := range undescribed(schema, &fields) {
				t.Errorf("%s: %s has no description", version, at)
			}
		}
		if fields < 150 {
			t.Errorf("%s: only %d fields were seen", version, fields)
		}
	}
}

func undescribed(s described, fields *int) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		*fields++
		property := s.Properties[name]
		if strings.TrimSpace(property.Description) == "" {
			found = append(found, name)
		}
		for _, below := range undescribed(property, fields) {
			found = append(found, name+"."+below)
		}
	}
	for _, below := range []*described{s.Items, s.AdditionalProperties} {
		if below != nil {
			found = append(found, undescribed(*below, fields)...)
		}
	}
	return found
}

func TestExplainAnswersWithReasons(t *testing.T) {
	for field, want := range map[string]string{
		"database":                              "one replicated database",
		"pldb.spec.version":                     "It may be raised within its major number",
		"database.spec.storage.size":            "It may grow, never shrink",
		"database.spec.replication.synchronous": "ENUM",
		"database.status.voters":                "majority decides who leads",
	} {
		for _, version := range versions() {
			out, err := kubectl(t, "explain", "--api-version=plimsoll.dev/"+version, field)
			if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("explain %s at %s (%v) does not say %q:\n%s", field, version, err, want, out)
			}
		}
	}
}
