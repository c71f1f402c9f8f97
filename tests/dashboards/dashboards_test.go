// Package dashboards asks a real Prometheus everything that the dashboards of config/grafana ask, of series that are named as the product's are.
package dashboards

import (
	"encoding/json"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// documents is where links to the documentation lead.
const documents = "https://github.com/plimsoll-dev/plimsoll-operator/blob/main/"

// ours is the variable that every panel takes its Prometheus from.
func ours() source { return source{Type: "prometheus", UID: "${datasource}"} }

// core are the panels that are used of those that every Grafana has.
func core() []string {
	return []string{"row", "stat", "timeseries", "state-timeline", "heatmap", "table", "bargauge"}
}

func TestEachDashboardFitsAnyGrafana(t *testing.T) {
	for _, b := range boards(t) {
		if b.UID+".json" != b.file || b.SchemaVersion < 39 || !slices.Contains(b.Tags, "plimsoll") {
			t.Errorf("%s has the uid %q, the schema %d and the tags %q; want its name, 39 or newer, and plimsoll among them", b.file, b.UID, b.SchemaVersion, b.Tags)
		}
		first := variable{}
		if len(b.Templating.List) > 0 {
			first = b.Templating.List[0]
		}
		if first.Name != "datasource" || first.Type != "datasource" || string(first.Query) != `"prometheus"` {
			t.Errorf("%s does not let choose its Prometheus first of all", b.file)
		}
		for _, v := range b.Templating.List[1:] {
			if v.Type == "query" && (v.Datasource != ours() || v.asks() != v.Definition) {
				t.Errorf("%s: the variable %s asks %v for %q, and shows that it asks for %q", b.file, v.Name, v.Datasource, v.asks(), v.Definition)
			}
		}
		for _, a := range b.Annotations.List {
			// Versions of Grafana differ in where they look.
			if a.Datasource != ours() || a.Expr != a.Target.Expr {
				t.Errorf("%s: the annotation %q asks %v two questions", b.file, a.Name, a.Datasource)
			}
		}
		ids := map[int]bool{}
		for i, p := range b.Panels {
			switch {
			case ids[p.ID] || p.ID == 0:
				t.Errorf("%s: the id %d of %q is that of another", b.file, p.ID, p.Title)
			case !slices.Contains(core(), p.Type):
				t.Errorf("%s: %q is a %s, which is not among those that are known to be in every Grafana", b.file, p.Title, p.Type)
			case p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0):
				t.Errorf("%s: panel %d has no title, does not say what it shows, or asks nothing", b.file, p.ID)
			case p.Type != "row" && p.Datasource != ours():
				t.Errorf("%s: %q asks %v", b.file, p.Title, p.Datasource)
			case len(p.Panels) > 0:
				t.Errorf("%s: the row %q is shut, and these tests do not look into it", b.file, p.Title)
			}
			ids[p.ID] = true
			for _, other := range b.Panels[:i] {
				if p.Place.overlaps(other.Place) || p.Place.X+p.Place.W > 24 {
					t.Errorf("%s: %q lies on %q, or beyond the edge", b.file, p.Title, other.Title)
				}
			}
			refs := map[string]bool{}
			for _, asked := range p.Targets {
				if asked.Datasource != ours() || asked.Instant == asked.Range || refs[asked.RefID] {
					t.Errorf("%s: target %s of %q asks %v, is of a moment and of a range or of neither, or its name is another's", b.file, asked.RefID, p.Title, asked.Datasource)
				}
				refs[asked.RefID] = true
			}
		}
	}
}

func TestLinksOfDashboardsLeadSomewhere(t *testing.T) {
	all := boards(t)
	address := regexp.MustCompile(`"url": ("/d/[^"]*")`)
	for _, b := range all {
		pages, dashboards := 0, 0
		for _, l := range b.Links {
			page, ours := strings.CutPrefix(l.URL, documents)
			switch {
			case l.Type == "dashboards":
				for _, other := range all {
					if other.UID != b.UID && slices.ContainsFunc(l.Tags, func(tag string) bool { return slices.Contains(other.Tags, tag) }) {
						dashboards++
					}
				}
			case !ours:
				t.Errorf("%s: the link %q leads to %s, which is no page of ours", b.file, l.Title, l.URL)
			default:
				pages++
				if _, err := os.Stat("../../" + page); err != nil {
					t.Errorf("%s: the link %q leads nowhere: %v", b.file, l.Title, err)
				}
			}
		}
		if pages == 0 || dashboards == 0 {
			t.Errorf("%s has %d links to the documentation and %d to other dashboards", b.file, pages, dashboards)
		}
		for _, match := range address.FindAllStringSubmatch(b.text, -1) {
			var raw string
			if err := json.Unmarshal([]byte(match[1]), &raw); err != nil {
				t.Fatal(err)
			}
			plain := strings.NewReplacer("${datasource:queryparam}", "var-datasource=x", "${__url_time_range}", "from=x&to=x").Replace(raw)
			to, err := url.Parse(plain)
			if err != nil {
				t.Errorf("%s: %v", b.file, err)
				continue
			}
			i := slices.IndexFunc(all, func(o board) bool { return to.Path == path.Join("/d", o.UID, o.UID) })
			if i < 0 {
				t.Errorf("%s: %s leads to no dashboard of ours", b.file, raw)
				continue
			}
			for name := range to.Query() {
				name, set := strings.CutPrefix(name, "var-")
				if set && !slices.ContainsFunc(all[i].Templating.List, func(v variable) bool { return v.Name == name }) {
					t.Errorf("%s: %s has no variable %s", b.file, all[i].file, name)
				}
			}
		}
	}
}

// TestEachMetricOfADashboardIsInTheReference, so that none waits for series that nobody has.
func TestEachMetricOfADashboardIsInTheReference(t *testing.T) {
	reference := referenceOfMetrics(t)
	for _, b := range boards(t) {
		asked := b.questions()
		for _, v := range b.Templating.List {
			if series, _, ok := v.chosen(); ok {
				asked = append(asked, question{where: b.file + ": " + v.Name, expr: series})
			}
		}
		for _, q := range asked {
			named := false
			for _, word := range strings.FieldsFunc(q.expr, func(c rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_", c) }) {
				if !strings.HasPrefix(word, "plimsoll_") {
					continue
				}
				named = true
				if !slices.ContainsFunc([]string{"", "_bucket", "_sum", "_count"}, func(part string) bool {
					whole, is := strings.CutSuffix(word, part)
					return is && strings.Contains(reference, "`"+whole+"`")
				}) {
					t.Errorf("%s asks for %s, which docs/reference/metrics.md does not have", q.where, word)
				}
			}
			if !named {
				t.Errorf("%s asks for no metric of ours", q.where)
			}
		}
	}
}

func referenceOfMetrics(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEachDashboardIsMadeAConfigMap that the sidecar of Grafana's chart looks for.
func TestEachDashboardIsMadeAConfigMap(t *testing.T) {
	raw, err := os.ReadFile(grafana + "/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		GeneratorOptions struct {
			Labels map[string]string `json:"labels"`
		} `json:"generatorOptions"`
		ConfigMapGenerator []struct {
			Files []string `json:"files"`
		} `json:"configMapGenerator"`
	}
	if err := yaml.Unmarshal(raw, &k); err != nil {
		t.Fatal(err)
	}
	if got := k.GeneratorOptions.Labels["grafana_dashboard"]; got != "1" {
		t.Errorf("the label grafana_dashboard is %q, want 1", got)
	}
	var want, got []string
	for _, b := range boards(t) {
		want = append(want, b.file)
	}
	for _, m := range k.ConfigMapGenerator {
		got = append(got, m.Files...)
	}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("config/grafana/kustomization.yaml (-want +got)\n%s", d)
	}
}

func TestBranchesOfAnExpression(t *testing.T) {
	for expr, want := range map[string][]string{
		"a":                                  {"a"},
		`sum(a or b) or c{x=" or "} or d`:    {"sum(a or b)", `c{x=" or "}`, "d"},
		"sum by (le) (a) or on () sum(b)":    {"sum by (le) (a)", "sum(b)"},
		"max(a) unless b and c or vector(0)": {"max(a) unless b and c", "vector(0)"},
	} {
		if d := cmp.Diff(want, branches(expr)); d != "" {
			t.Errorf("%s: %s", expr, d)
		}
	}
}
