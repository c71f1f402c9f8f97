package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// nightly is what this test reads of the workflow.
type nightly struct {
	Jobs struct {
		Faults struct {
			Strategy struct {
				Matrix struct {
					Include []struct{ Name, Events string }
				}
			}
			Steps []struct{ Run string }
		}
	}
}

// TestEveryEventHasItsPlace: CI brings about each event at least once, in `make test` or at night, and none twice.
func TestEveryEventHasItsPlace(t *testing.T) {
	const path = "../../.github/workflows/nightly.yml"
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var workflow nightly
	if err := yaml.Unmarshal(raw, &workflow); err != nil {
		t.Fatal(err)
	}
	job := workflow.Jobs.Faults
	const call = `make bench-ha RUNS=1 EVENTS="${{ matrix.events }}"`
	if !slices.ContainsFunc(job.Steps, func(s struct{ Run string }) bool { return s.Run == call }) {
		t.Errorf("%s: no step of the job faults is: %s", path, call)
	}
	places := map[string][]string{}
	for _, e := range everyEvent() {
		if len(places[e.Name]) > 0 {
			t.Errorf("two events are called %s", e.Name)
		}
		places[e.Name] = append(places[e.Name], map[bool]string{true: "make test"}[e.main])
		if e.main && e.inside && !slices.Contains(insideKinds(), e.kind) {
			t.Errorf("%s is of kind %q, for which no test calls inside", e.Name, e.kind)
		}
	}
	for _, shard := range job.Strategy.Matrix.Include {
		for name := range strings.SplitSeq(shard.Events, ",") {
			if len(places[name]) == 0 {
				t.Errorf("%s: the shard %s names %q, which is no event", path, shard.Name, name)
			}
			places[name] = append(places[name], "the shard "+shard.Name)
		}
	}
	for name, all := range places {
		all = slices.DeleteFunc(all, func(place string) bool { return place == "" })
		if len(all) != 1 {
			t.Errorf("%s is in %d places, want one: %q. An event that is not main belongs into a shard of %s", name, len(all), all, path)
		}
	}
}
