package dashboards

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// grafana is where the dashboards are.
const grafana = "../../config/grafana"

// board is what the tests read of a dashboard, in Grafana's words.
type board struct {
	file string
	text string

	UID           string    `json:"uid"`
	Title         string    `json:"title"`
	Tags          []string  `json:"tags"`
	SchemaVersion int       `json:"schemaVersion"`
	Links         []link    `json:"links"`
	Panels        []panel   `json:"panels"`
	Templating    templates `json:"templating"`
	Annotations   struct {
		List []annotation `json:"list"`
	} `json:"annotations"`
}

type link struct {
	Type  string   `json:"type"`
	Title string   `json:"title"`
	URL   string   `json:"url"`
	Tags  []string `json:"tags"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type templates struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Datasource source `json:"datasource"`
	// Query is a string or, of a variable that asks, an object with it.
	Query      json.RawMessage `json:"query"`
	Definition string          `json:"definition"`
}

type annotation struct {
	Name       string `json:"name"`
	Datasource source `json:"datasource"`
	Expr       string `json:"expr"`
	Title      string `json:"titleFormat"`
	Target     target `json:"target"`
}

type panel struct {
	ID          int      `json:"id"`
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Place       place    `json:"gridPos"`
	Datasource  source   `json:"datasource"`
	Targets     []target `json:"targets"`
	Panels      []panel  `json:"panels"`
}

type place struct{ X, Y, W, H int }

func (p place) overlaps(o place) bool {
	return p.X < o.X+o.W && o.X < p.X+p.W && p.Y < o.Y+o.H && o.Y < p.Y+p.H
}

type target struct {
	RefID      string `json:"refId"`
	Datasource source `json:"datasource"`
	Expr       string `json:"expr"`
	Legend     string `json:"legendFormat"`
	Instant    bool   `json:"instant"`
	Range      bool   `json:"range"`
}

// boards are all dashboards of config/grafana.
func boards(t *testing.T) []board {
	t.Helper()
	files, err := filepath.Glob(grafana + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("look for dashboards: %d found, %v", len(files), err)
	}
	var all []board
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b := board{file: filepath.Base(file), text: string(raw)}
		if err := json.Unmarshal(raw, &b); err != nil {
			t.Fatalf("%s: %v", b.file, err)
		}
		all = append(all, b)
	}
	return all
}

// question is an expression of a dashboard, and what has to be in its answer.
type question struct {
	where   string
	expr    string
	instant bool
	// labels that some series has.
	labels []string
}

var (
	inLegend  = regexp.MustCompile(`{{\s*(\w+)\s*}}`)
	groupLeft = regexp.MustCompile(`group_left \((\w+)\)`)
)

// questions are all expressions that a dashboard asks, as it has them.
func (b board) questions() []question {
	var all []question
	add := func(where, expr, legend string, instant bool) {
		q := question{where: b.file + ": " + where, expr: expr, instant: instant}
		for _, match := range append(inLegend.FindAllStringSubmatch(legend, -1), groupLeft.FindAllStringSubmatch(expr, -1)...) {
			if match[1] != "le" { // a heatmap's, which native histograms do not have
				q.labels = append(q.labels, match[1])
			}
		}
		all = append(all, q)
	}
	for _, p := range b.Panels {
		for _, asked := range p.Targets {
			add(p.Title+", "+asked.RefID, asked.Expr, asked.Legend, asked.Instant)
		}
	}
	for _, a := range b.Annotations.List {
		add(a.Name, a.Expr, a.Title, false)
	}
	return all
}

var labelValues = regexp.MustCompile(`^label_values\((plimsoll_\w+(?:{[^}]*})?), (\w+)\)$`)

// asks is the question of a variable that asks.
func (v variable) asks() string {
	var q struct {
		Query string `json:"query"`
	}
	if json.Unmarshal(v.Query, &q) != nil {
		return ""
	}
	return q.Query
}

// chosen is what a variable lets choose of: the values of a label of some series.
func (v variable) chosen() (series, label string, ok bool) {
	match := labelValues.FindStringSubmatch(v.Definition)
	if match == nil {
		return "", "", false
	}
	return match[1], match[2], true
}

// filled puts values in place of variables: those that a reader would choose, and those of Grafana.
func filled(expr string) string {
	return strings.NewReplacer(
		"$__rate_interval", "5s", "$__range", "30s", "$__interval", "5s",
		"$namespace", "shop", "$database", "orders", "$instance", ".*", "$top", "10",
	).Replace(expr)
}

// branches are the sides of the `or`s of an expression that are in no parentheses: each has to be worth its place.
func branches(expr string) []string {
	var found []string
	depth, begin, quoted := 0, 0, false
	for i := 0; i < len(expr); i++ {
		switch {
		case expr[i] == '"':
			quoted = !quoted
		case quoted:
		case strings.IndexByte("({[", expr[i]) >= 0:
			depth++
		case strings.IndexByte(")}]", expr[i]) >= 0:
			depth--
		case depth == 0 && strings.HasPrefix(expr[i:], " or "):
			found = append(found, expr[begin:i])
			begin = i + len(" or ")
			if on := "on () "; strings.HasPrefix(expr[begin:], on) {
				begin += len(on)
			}
		}
	}
	return append(found, expr[begin:])
}
