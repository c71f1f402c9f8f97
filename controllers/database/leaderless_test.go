package database

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const away = "the API server does not answer, and nobody is elected without it"

// bereaved is a Database whose leader is gone, and what each of the others waits for.
func bereaved(waits map[string]engine.Wait) *scene {
	s := settled(3)
	s.down(1)
	for name, w := range waits {
		s.report(name, func(r *engine.Report) { r.Leading, r.Role, r.Waits = false, engine.Replica, new(w) })
	}
	return s
}

func TestStatusSaysWhyNobodyLeads(t *testing.T) {
	type told struct {
		Message   string
		Instances []string // reason and message of orders-2 and orders-3
		Event     string   // the reason of the one beside that of the condition
	}
	api := engine.Wait{For: v1.ReasonAPIServerAway, Text: away}
	aside := engine.Wait{For: v1.ReasonStandsAside, Text: "it stands aside for orders-2: it holds more"}
	for sentence, row := range map[string]struct {
		waits map[string]engine.Wait
		want  told
	}{
		"all wait for the same": {
			map[string]engine.Wait{"orders-2": api, "orders-3": api},
			told{"no instance takes writes: orders-2, orders-3: " + away, []string{"APIServerAway: " + away, "APIServerAway: " + away}, "APIServerAway"},
		},
		"what a person can change comes first": {
			map[string]engine.Wait{"orders-2": aside, "orders-3": {For: v1.ReasonVotersSilent, Text: "there is no majority: orders-1 does not answer"}},
			told{
				"no instance takes writes: orders-3: there is no majority: orders-1 does not answer; orders-2: it stands aside for orders-2: it holds more",
				[]string{"StandsAside: it stands aside for orders-2: it holds more", "VotersSilent: there is no majority: orders-1 does not answer"},
				"VotersSilent",
			},
		},
		"what passes by itself is worth no event of its own": {
			map[string]engine.Wait{"orders-3": aside},
			told{"no instance takes writes: orders-3: " + aside.Text, []string{": ", "StandsAside: " + aside.Text}, ""},
		},
		"a reason of a later release is passed on": {
			map[string]engine.Wait{"orders-3": {For: "Novel", Text: "something new"}},
			told{"no instance takes writes: orders-3: something new", []string{": ", "Novel: something new"}, ""},
		},
		"nobody says anything": {
			nil, told{"no instance takes writes; status.instances shows what each waits for", []string{": ", ": "}, ""},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := bereaved(row.waits)
			before := summarise(settled(3).Seen, decide(settled(3).Seen, surroundings(), noon()), Acted{}, noon())
			status := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
			got := told{Message: meta.FindStatusCondition(status.Conditions, v1.ConditionReady).Message}
			for _, i := range status.Instances[1:] {
				got.Instances = append(got.Instances, i.Reason+": "+i.Message)
			}
			for _, o := range changes(before, status) {
				if o.Action == "Elect" {
					got.Event += o.Reason
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			if again := changes(status, status); len(again) != 0 {
				t.Errorf("told again without a change: %v", again)
			}
		})
	}
}

// TestOtherCausesAreToldWhenTheyComeUp, though nobody led before either.
func TestOtherCausesAreToldWhenTheyComeUp(t *testing.T) {
	look := func(w engine.Wait) v1.DatabaseStatus {
		s := bereaved(map[string]engine.Wait{"orders-2": w})
		return summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	}
	passing := look(engine.Wait{For: v1.ReasonGrantRuns, Text: "nothing is heard of orders-1, and its grant has not run out"})
	lasting := look(engine.Wait{For: v1.ReasonAPIServerAway, Text: away})
	want := []occurrence{{corev1.EventTypeWarning, v1.ReasonAPIServerAway, "Elect", "no instance takes writes: orders-2: " + away}}
	if diff := cmp.Diff(want, changes(passing, lasting)); diff != "" {
		t.Error(diff)
	}
	if got := changes(lasting, passing); len(got) != 0 {
		t.Errorf("an event for what passes by itself: %v", got)
	}
}

// TestTheOnlyOneThatMayLeadIsNamedOnce, by the condition, and not again by each that waits for it.
func TestTheOnlyOneThatMayLeadIsNamedOnce(t *testing.T) {
	only := engine.Wait{For: v1.ReasonOnlyLastLeader, Text: "orders-1 alone is known to hold the newest writes"}
	s := bereaved(map[string]engine.Wait{"orders-2": only, "orders-3": only})
	s.degraded()
	status := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	c := meta.FindStatusCondition(status.Conditions, v1.ConditionReady)
	if c.Reason != v1.ReasonNoPrimary || strings.Count(c.Message, "alone is known to hold") != 1 {
		t.Errorf("Ready is %s %s: %s", c.Status, c.Reason, c.Message)
	}
}

// TestALeaderThatClientsAreNotSentToDoesNotServe, whatever it says of its server.
func TestALeaderThatClientsAreNotSentToDoesNotServe(t *testing.T) {
	s := settled(3)
	s.report("orders-1", func(r *engine.Report) { r.Waits = &engine.Wait{For: v1.ReasonNotRouted, Text: "not yet"} })
	status := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	if c := meta.FindStatusCondition(status.Conditions, v1.ConditionReady); c.Reason != v1.ReasonNoPrimary || c.Message != "no instance takes writes: orders-1: not yet" {
		t.Errorf("Ready is %s %s: %s", c.Status, c.Reason, c.Message)
	}
}

// TestEveryWaitOfAnAgentHasItsRank : the agents' words and the manager's are the same.
func TestEveryWaitOfAnAgentHasItsRank(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../agent/lease/waits.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "WaitFor" {
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if word != "" {
				said = append(said, word)
			}
		}
		return true
	})
	known := telling()
	slices.Sort(known)
	slices.Sort(said)
	if diff := cmp.Diff(known, said); diff != "" || len(said) == 0 {
		t.Error(diff)
	}
}

// TestStepsTellAReleaseFromAnExpiry : the old leader said that it had ended, or its time ran out.
func TestStepsTellAReleaseFromAnExpiry(t *testing.T) {
	released := steps(&engine.HandOver{Seen: 1000, Released: 1100, Elected: 1200, Promoted: 1300})
	want := []v1.HandOverStep{{Name: "seen"}, {Name: "released", AfterMillis: 100}, {Name: "elected", AfterMillis: 200}, {Name: "promoted", AfterMillis: 300}}
	if diff := cmp.Diff(want, released); diff != "" {
		t.Error(diff)
	}
	expired := steps(&engine.HandOver{Seen: 1000, Expired: 4000, Elected: 4100, Promoted: 4200})
	want = []v1.HandOverStep{{Name: "seen"}, {Name: "expired", AfterMillis: 3000}, {Name: "elected", AfterMillis: 3100}, {Name: "promoted", AfterMillis: 3200}}
	if diff := cmp.Diff(want, expired); diff != "" {
		t.Error(diff)
	}
}
