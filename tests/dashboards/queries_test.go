package dashboards

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// wholeWithin is how long it may take until there is an answer to everything. Rates take a few scrapes, a change of the leader some seconds.
const wholeWithin = 2 * time.Minute

// servers are the ways in which a Prometheus may hold the histograms, by the features that it is started with.
func servers() map[string][]string {
	return map[string][]string{"classic histograms": nil, "native histograms": {"native-histograms"}}
}

// TestEveryQuestionIsAnswered by each kind of Prometheus, with series that have the labels that the panel names.
func TestEveryQuestionIsAnswered(t *testing.T) {
	shop := sell(t)
	running := map[string]*server{}
	for sentence, features := range servers() {
		running[sentence] = start(t, shop, features...)
	}
	for _, sentence := range slices.Sorted(maps.Keys(running)) {
		t.Run(sentence, func(t *testing.T) {
			open := everything(t)
			for deadline := time.Now().Add(wholeWithin); ; time.Sleep(tick) {
				open = unanswered(t, running[sentence], open)
				if len(open) == 0 || time.Now().After(deadline) {
					break
				}
			}
			for _, o := range open {
				t.Errorf("%s: %s: %s", o.where, o.want, o.expr)
			}
		})
	}
	// What follows an `or` is for one kind of Prometheus, or for one state of things: where nobody has an answer to it, nobody knows that it is right.
	parts := everyBranch(t)
	for deadline := time.Now().Add(wholeWithin); ; time.Sleep(tick) {
		for _, s := range running {
			parts = unanswered(t, s, parts)
		}
		if len(parts) == 0 || t.Failed() || time.Now().After(deadline) {
			break
		}
	}
	for _, p := range parts {
		t.Errorf("%s: no kind of Prometheus has an answer to this part: %s", p.where, p.expr)
	}
}

// lacking is a question and what its answer lacks.
type lacking struct {
	question
	want string
}

func everything(t *testing.T) []lacking {
	t.Helper()
	var all []lacking
	for _, b := range boards(t) {
		for _, q := range b.questions() {
			q.expr = filled(q.expr)
			if strings.Contains(q.expr, "$") {
				t.Fatalf("%s has a variable that is not known: %s", q.where, q.expr)
			}
			all = append(all, lacking{question: q})
		}
	}
	return all
}

// everyBranch is everything, taken apart at its `or`s.
func everyBranch(t *testing.T) []lacking {
	t.Helper()
	var all []lacking
	for _, q := range everything(t) {
		for _, branch := range branches(q.expr) {
			all = append(all, lacking{question: question{where: q.where, expr: branch, instant: q.instant}})
		}
	}
	return all
}

// unanswered are those that are still without an answer. What Prometheus does not understand is told at once.
func unanswered(t *testing.T, s *server, asked []lacking) []lacking {
	t.Helper()
	var left []lacking
	for _, q := range asked {
		answer, err := s.ask(q.expr, q.instant)
		if errors.Is(err, errNotUnderstood) {
			t.Errorf("%s: %v: %s", q.where, err, q.expr)
			continue
		}
		q.want = ""
		if len(answer) == 0 {
			q.want = "no series"
		}
		for _, label := range q.labels {
			if !slices.ContainsFunc(answer, func(one series) bool { return one.Metric[label] != "" }) {
				q.want = "no series with the label " + label
			}
		}
		if err != nil {
			q.want = err.Error()
		}
		if q.want != "" {
			left = append(left, q)
		}
	}
	return left
}

func TestEveryVariableHasSomethingToChoose(t *testing.T) {
	s := start(t, sell(t))
	deadline := time.Now().Add(wholeWithin)
	for _, b := range boards(t) {
		for _, v := range b.Templating.List {
			if v.Type != "query" {
				continue
			}
			of, label, ok := v.chosen()
			if !ok {
				t.Errorf("%s: the variable %s asks for %q, want label_values(SERIES, LABEL)", b.file, v.Name, v.Definition)
				continue
			}
			want := map[string][]string{"namespace": {"shop"}, "database": {"headless", "orders"}, "instance": {"orders-1", "orders-2", "orders-3"}}[v.Name]
			var got []string
			for first := true; first || !slices.Equal(got, want) && time.Now().Before(deadline); first = false {
				if !first {
					time.Sleep(tick / 4)
				}
				var err error
				if got, err = s.valuesOf(label, filled(of)); err != nil {
					t.Fatalf("%s: %s: %v", b.file, v.Name, err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: of %s one may choose %q, want %q", b.file, v.Name, got, want)
			}
		}
	}
}
