package database

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// upgraded is a Database that runs well with the agents of an operator before.
func upgraded(replicas int32) *scene {
	s := settled(replicas)
	for n := int32(1); n <= replicas; n++ {
		s.report(name(n), func(r *engine.Report) {
			r.AgentDigest, r.AgentVersion, r.Architecture = "sha256:old", "v1", "amd64"
		})
	}
	return s
}

func withPrograms() Surroundings {
	around := surroundings()
	around.Programs = Programs{"amd64": {Digest: "sha256:new", Version: "v2"}}
	return around
}

func TestDecidePrograms(t *testing.T) {
	runs := func(s *scene, n int32) {
		s.report(name(n), func(r *engine.Report) { r.AgentDigest, r.AgentVersion = "sha256:new", "v2" })
	}
	tried := func(s *scene, n int32, next time.Time, why string) {
		s.Attempts = map[string]Attempt{name(n): {Digest: "sha256:new", Tries: 1, Next: next, Why: why}}
	}
	rows := map[string]struct {
		replicas      int32
		change        func(*scene)
		send, working string
		keeps         map[string]string
	}{
		"the first replica is the first": {3, func(*scene) {}, "orders-2", "exchanging the agent of orders-2 for v2", nil},
		"then the next":                  {3, func(s *scene) { runs(s, 2) }, "orders-3", "exchanging the agent of orders-3 for v2", nil},
		"the leader is the last":         {3, func(s *scene) { runs(s, 2); runs(s, 3) }, "orders-1", "exchanging the agent of orders-1 for v2", nil},
		"who runs it is left alone":      {3, func(s *scene) { runs(s, 1); runs(s, 2); runs(s, 3) }, "", "", nil},
		"one instance is its own leader": {1, func(*scene) {}, "orders-1", "exchanging the agent of orders-1 for v2", nil},
		"none while it is paused":        {3, func(s *scene) { s.Database.Spec.Maintenance.Paused = true }, "", "", nil},
		"none while another is not ready": {
			3,
			func(s *scene) { s.report(name(3), func(r *engine.Report) { r.Ready = false }) },
			"", "waiting for orders-3 to become ready before the agent of orders-2 is exchanged for v2", nil,
		},
		"none while another is silent": {
			3,
			func(s *scene) { s.silence(name(3)) },
			"", "waiting for orders-3 to become ready before the agent of orders-2 is exchanged for v2", nil,
		},
		"none while a replica is not in step": {
			3,
			func(s *scene) { s.streaming("orders-2") },
			"", "waiting for orders-3 to be in step with orders-1 before the agent of orders-2 is exchanged for v2", nil,
		},
		"none while the one before is at it": {
			3,
			func(s *scene) {
				s.report(name(2), func(r *engine.Report) {
					r.Exchange = &engine.Exchange{Digest: "sha256:new", Version: "v2", Message: "waits for a quiet moment"}
				})
			},
			"", "exchanging the agent of orders-2 for v2: waits for a quiet moment", nil,
		},
		"one that was sent is not sent again at once": {
			3,
			func(s *scene) { tried(s, 2, noon().Add(3*time.Second), "") },
			"", "exchanging the agent of orders-2 for v2", nil,
		},
		"one that was refused holds up the others, and says why": {
			3,
			func(s *scene) { tried(s, 2, noon().Add(time.Minute), "the program does not understand it") },
			"", "orders-2 keeps its agent v1 for now, and is asked again to exchange it for v2: the program does not understand it", nil,
		},
		"one that gave up says why in its own words": {
			3,
			func(s *scene) {
				tried(s, 2, noon().Add(time.Minute), "")
				s.report(name(2), func(r *engine.Report) {
					r.Exchange = &engine.Exchange{Digest: "sha256:new", Version: "v2", Failed: true, Message: "no quiet moment"}
				})
			},
			"", "orders-2 keeps its agent v1 for now, and is asked again to exchange it for v2: no quiet moment", nil,
		},
		"it is sent again when its time has come": {
			3,
			func(s *scene) { tried(s, 2, noon().Add(-time.Second), "no") },
			"orders-2", "exchanging the agent of orders-2 for v2", nil,
		},
		"the next waits until the one before has run for a while": {
			3,
			func(s *scene) {
				runs(s, 2)
				s.Attempts = map[string]Attempt{name(2): {Digest: "sha256:new", Tries: 1, Runs: noon().Add(-settles + time.Second)}}
			},
			"", "watching the new agent of orders-2 for 10s before that of orders-3 is exchanged for v2", nil,
		},
		"and no longer": {
			3,
			func(s *scene) {
				runs(s, 2)
				s.Attempts = map[string]Attempt{name(2): {Digest: "sha256:new", Tries: 1, Runs: noon().Add(-settles)}}
			},
			"orders-3", "exchanging the agent of orders-3 for v2", nil,
		},
		"another program is not held up by what became of the one before": {
			3,
			func(s *scene) {
				s.Attempts = map[string]Attempt{name(2): {Digest: "sha256:between", Next: noon().Add(time.Hour)}}
			},
			"orders-2", "exchanging the agent of orders-2 for v2", nil,
		},
		"a fenced instance waits until it is not": {
			3,
			func(s *scene) {
				runs(s, 1)
				runs(s, 3)
				s.Database.Spec.Maintenance.Fenced = []string{"orders-2"}
				s.report(name(2), func(r *engine.Report) { r.State, r.Role, r.Ready = "fenced", engine.Stopped, false })
				s.obey()
			},
			"", "", nil,
		},
		"none for an architecture that the image does not hold, and it is said": {
			3,
			func(s *scene) {
				s.report(name(2), func(r *engine.Report) { r.Architecture = "arm64" })
				runs(s, 1)
				runs(s, 3)
			},
			"", "",
			map[string]string{"orders-2": "it keeps its agent v1: this operator's image holds none for arm64"},
		},
		"an agent that does not say what it runs is left alone": {
			3,
			func(s *scene) {
				for n := int32(1); n <= 3; n++ {
					s.report(name(n), func(r *engine.Report) { r.AgentDigest = "" })
				}
			},
			"", "", nil,
		},
		"none while a pod is made anew": {
			3,
			func(s *scene) { delete(s.Pods, name(3)) },
			"", "starting orders-3", nil,
		},
	}
	for title, row := range rows {
		t.Run(title, func(t *testing.T) {
			s := upgraded(row.replicas)
			row.change(s)
			p := decide(s.Seen, withPrograms(), noon())
			send := ""
			if p.Send != nil {
				send = p.Send.To.Instance
			}
			working := ""
			if p.Working != nil {
				working = p.Working.Message
			}
			if send != row.send || working != row.working {
				t.Errorf("sends to %q, working %q; want %q and %q", send, working, row.send, row.working)
			}
			if row.keeps == nil {
				row.keeps = map[string]string{}
			}
			if diff := cmp.Diff(row.keeps, p.Keeps); diff != "" {
				t.Errorf("keeps (-want +got):\n%s", diff)
			}
			if len(p.Remove) > 0 {
				t.Errorf("a new operator takes pods away: %v", p.Remove)
			}
		})
	}
}

// TestPodsOfAnEarlierOperator: neither another image of the agent nor another program changes a pod that is there.
func TestPodsOfAnEarlierOperator(t *testing.T) {
	s := upgraded(3)
	around := withPrograms()
	around.AgentImage = "registry.test/plimsoll:v2"
	if p := decide(s.Seen, around, noon()); len(p.Remove) > 0 || len(p.Pods) > 0 {
		t.Errorf("pods go %v and come %v", p.Remove, p.Pods)
	}
}

func TestAttempts(t *testing.T) {
	counts := map[string]int{}
	a, key := newAttempts(func(result string) { counts[result]++ }), types.NamespacedName{Namespace: "shop", Name: "orders"}
	now := noon()
	program := client.Program{Digest: "sha256:new", Version: "v2"}
	var pauses []time.Duration
	for range 6 {
		pauses = append(pauses, a.note(key, "orders-2", program, "no", now).Next.Sub(now))
	}
	want := []time.Duration{5 * time.Second, 20 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 30 * time.Minute}
	if diff := cmp.Diff(want, pauses); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	newer := client.Program{Digest: "sha256:newer", Version: "v3"}
	if got := a.note(key, "orders-2", newer, "", now); got.Tries != 1 {
		t.Errorf("another program is try %d", got.Tries)
	}
	says := func(digest string, under *engine.Exchange) map[string]Heard {
		return map[string]Heard{"orders-2": {Report: engine.Report{AgentDigest: digest, AgentVersion: "v1", Exchange: under}}}
	}
	look := func(digest string, under *engine.Exchange) Attempt {
		return a.of(key, says(digest, under), now)["orders-2"]
	}
	first := Attempt{Digest: "sha256:newer", Version: "v3", Tries: 1, Next: now.Add(5 * time.Second)}
	if diff := cmp.Diff(first, look("sha256:old", nil)); diff != "" {
		t.Errorf("an attempt whose program does not run (-want +got):\n%s", diff)
	}
	begun := first
	begun.Runs = now
	if diff := cmp.Diff(begun, look("sha256:newer", nil)); diff != "" {
		t.Errorf("one whose program runs (-want +got):\n%s", diff)
	}
	now = now.Add(90 * time.Second)
	fell := Attempt{Digest: "sha256:newer", Version: "v3", Tries: 1, Next: now.Add(20 * time.Second), Why: "orders-2 ran it for 1m30s, and came back with v1"}
	if diff := cmp.Diff(fell, look("sha256:old", nil)); diff != "" {
		t.Errorf("one that did not survive its program (-want +got):\n%s", diff)
	}
	if got := a.note(key, "orders-2", newer, "", now); got.Tries != 2 || got.Next.Sub(now) != 20*time.Second {
		t.Errorf("it is try %d, and the next is made after %s", got.Tries, got.Next.Sub(now))
	}
	failed := &engine.Exchange{Digest: "sha256:newer", Failed: true, Message: "no quiet moment"}
	look("sha256:old", failed)
	look("sha256:old", failed)
	look("sha256:newer", nil)
	now = now.Add(proven)
	if got := a.of(key, says("sha256:newer", nil), now); len(got) != 0 {
		t.Errorf("one that has run for long is %v", got)
	}
	wantCounts := map[string]int{"sent": 2, "refused": 6, "done": 2, "fell_back": 1, "given_up": 1}
	if diff := cmp.Diff(wantCounts, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func digestOf(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

func TestReadPrograms(t *testing.T) {
	dir := t.TempDir()
	for file, content := range map[string]string{"plimsoll-agent": "own", "plimsoll-agent-arm64": "other"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadPrograms(filepath.Join(dir, "plimsoll-agent"), "amd64", []string{"arm64", "s390x"}, "v2")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]client.Program{}
	for architecture, p := range got {
		p.Open = nil
		told[architecture] = p
	}
	want := map[string]client.Program{
		"amd64": {Digest: digestOf("own"), Version: "v2", Size: 3},
		"arm64": {Digest: digestOf("other"), Version: "v2", Size: 5},
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
}
