package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// States of a Table.
const (
	stateMeasured = "measured"
	statePartly   = "partly"
	stateUnseen   = "unseen"
	stateWaiting  = "waiting"
)

const (
	// textWidth is how much of a text is shown where the terminal's width is not known, and leastText where it is too small.
	textWidth, leastText = 80, 20
	// nameWidth bounds names of users and databases.
	nameWidth = 24
	// mostClients are named.
	mostClients = 5
)

// picture is what the instances of a Database did in one interval.
type picture struct {
	at                  time.Time
	namespace, database string
	// total says that it is all since the probes began.
	total bool
	// seconds that it took: of the instances' intervals the longest.
	seconds    float64
	instances  []measured
	all        work
	statements []work
	clients    []view.Client
}

// measured is how far one instance is shown.
type measured struct {
	name string
	// shown says that what it did is in the picture.
	shown   bool
	state   string
	began   time.Time // its probe
	seconds float64
	note    string
}

// nothing says that no instance is shown.
func (p picture) nothing() bool {
	return !slices.ContainsFunc(p.instances, func(m measured) bool { return m.shown })
}

// measured counts the instances that are measured in full.
func (p picture) measured() int {
	n := 0
	for _, m := range p.instances {
		if m.shown && m.state == stateMeasured {
			n++
		}
	}
	return n
}

// stateWords say what there is to say of a state.
func stateWords(state string) string {
	const look = ": see kubectl plimsoll probe status"
	switch state {
	case stateMeasured:
		return ""
	case statePartly:
		return "it is measured in part" + look
	case stateUnseen:
		return "its probe cannot measure it" + look
	case stateWaiting:
		return "it is not measured yet" + look
	default:
		return "it is " + or(printable(state), "in a state without a name") + look
	}
}

// notes are what a person should know of instances.
func (p picture) notes() []string {
	var all []string
	for _, m := range p.instances {
		if m.note != "" {
			all = append(all, m.name+": "+m.note)
		}
	}
	return all
}

// table writes it for people: so many statements, each on a line of so many columns; 0 is all, and not known.
func (p picture) table(out io.Writer, limit, width int) error {
	if err := p.head(out); err != nil {
		return err
	}
	if len(p.statements) > 0 {
		if err := p.rows(out, limit, width); err != nil {
			return err
		}
	}
	notes := printer{w: out}
	if len(p.statements) == 0 {
		notes.line("no statement ended in this time")
	}
	if len(p.notes()) > 0 {
		notes.line("")
	}
	for _, note := range p.notes() {
		notes.line("%s", note)
	}
	return notes.err
}

func (p picture) head(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	h := printer{w: w}
	h.line("Database\t%s/%s, %d of %d instances measured in full", p.namespace, p.database, p.measured(), len(p.instances))
	h.line("Time\t%s", p.time())
	h.line("Statements\t%s/s, %s errors/s, p50 %s, p95 %s, p99 %s", rate(p.all.calls), rate(p.all.errors),
		quantile(p.all.Buckets, 0.5), quantile(p.all.Buckets, 0.95), quantile(p.all.Buckets, 0.99))
	h.line("Clients\t%s", clientWords(p.clients))
	h.line("")
	return errors.Join(h.err, w.Flush())
}

func (p picture) time() string {
	took := wait{seconds: p.seconds, known: true}.String()
	if p.total {
		return "since each probe began, " + took + " at the most"
	}
	return took + " until " + p.at.Format(time.TimeOnly)
}

func clientWords(all []view.Client) string {
	if len(all) == 0 {
		return "none"
	}
	var words []string
	var rest, open uint64
	for n, c := range all {
		open += c.Open
		if n >= mostClients {
			rest += c.Open
			continue
		}
		who := strings.TrimPrefix(c.Namespace+"/"+c.Name, "/")
		words = append(words, printable(strings.TrimSpace(c.Kind+" "+who))+" "+strconv.FormatUint(c.Open, 10))
	}
	if more := len(all) - mostClients; more > 0 {
		words = append(words, fmt.Sprintf("%d others with %d", more, rest))
	}
	return fmt.Sprintf("%d connections: %s", open, strings.Join(words, ", "))
}

func (p picture) rows(out io.Writer, limit, width int) error {
	named, others := p.split(limit)
	var left strings.Builder
	w := tabwriter.NewWriter(&left, 0, 0, 2, ' ', 0)
	t := printer{w: w}
	// The texts come behind what tabwriter lines up, so that they can be cut to what is left of a line.
	texts := []string{"STATEMENT"}
	t.line("TIME%%\tCALLS/S\tP50\tP95\tP99\tERR/S\tROWS/S\tUSER\tDATABASE\tQUERY-ID\t")
	row := func(w work, text string) {
		t.line("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", p.share(w), rate(w.calls),
			quantile(w.Buckets, 0.5), quantile(w.Buckets, 0.95), quantile(w.Buckets, 0.99), rate(w.errors), rate(w.rows),
			column(w.user), column(w.database), column(w.query))
		texts = append(texts, text)
	}
	for _, w := range named {
		row(w, or(printable(w.text), "-"))
	}
	if others != nil {
		row(*others, "others")
	}
	row(p.all, "all")
	if err := errors.Join(t.err, w.Flush()); err != nil {
		return err
	}
	lines := printer{w: out}
	for n, line := range strings.Split(strings.TrimSuffix(left.String(), "\n"), "\n") {
		room := textWidth
		if width > 0 {
			room = max(leastText, width-len([]rune(line)))
		}
		lines.line("%s%s", line, cut(texts[n], room))
	}
	return lines.err
}

// split gives the statements to show, and the sum of all others.
func (p picture) split(limit int) (named []work, others *work) {
	var rest []work
	for _, w := range p.statements {
		if w.query == view.Other || limit > 0 && len(named) >= limit {
			rest = append(rest, w)
			continue
		}
		named = append(named, w)
	}
	if len(rest) > 0 {
		others = new(together(rest))
	}
	return named, others
}

// share of the time that clients waited.
func (p picture) share(w work) string {
	if p.all.busy <= 0 {
		return "-"
	}
	return strconv.FormatFloat(100*w.busy/p.all.busy, 'f', 1, 64)
}

// column holds the name of a user, a database or a query.
func column(text string) string { return cut(or(printable(text), "-"), nameWidth) }

// rate has three digits.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < 0.005:
		return "<0.01"
	case perSecond < 9.995:
		return strconv.FormatFloat(perSecond, 'f', 2, 64)
	case perSecond < 99.95:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}

// String is for people.
func (w wait) String() string {
	if !w.known {
		return "-"
	}
	prefix := ""
	if w.beyond {
		prefix = ">"
	}
	switch {
	case w.seconds < 999.5e-6:
		return prefix + rate(w.seconds*1e6) + "µs"
	case w.seconds < 999.5e-3:
		return prefix + rate(w.seconds*1e3) + "ms"
	case w.seconds < 120:
		return prefix + rate(w.seconds) + "s"
	}
	return prefix + time.Duration(w.seconds*float64(time.Second)).Round(time.Second).String()
}

// json writes it for programs, on one line.
func (p picture) json(out io.Writer) error {
	o := pictureJSON{
		Time: p.at.UTC(), Namespace: p.namespace, Database: p.database, SinceBegan: p.total, Seconds: p.seconds,
		Instances: []measuredJSON{}, Totals: newWorkJSON(p.all), Statements: []statementJSON{}, Clients: p.clients,
	}
	for _, m := range p.instances {
		j := measuredJSON{Name: m.name, Shown: m.shown, State: m.state, Seconds: m.seconds, Note: m.note}
		if m.shown {
			j.Began = &m.began
		}
		o.Instances = append(o.Instances, j)
	}
	for _, w := range p.statements {
		o.Statements = append(o.Statements, statementJSON{User: w.user, Database: w.database, Query: w.query, Text: w.text, workJSON: newWorkJSON(w)})
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false) // texts compare
	return e.Encode(o)
}

// pictureJSON is a picture for programs; all times are in seconds.
type pictureJSON struct {
	Time       time.Time       `json:"time"`
	Namespace  string          `json:"namespace"`
	Database   string          `json:"database"`
	SinceBegan bool            `json:"sinceBegan"`
	Seconds    float64         `json:"seconds"`
	Instances  []measuredJSON  `json:"instances"`
	Totals     workJSON        `json:"totals"`
	Statements []statementJSON `json:"statements"`
	Clients    []view.Client   `json:"clients"`
}

type measuredJSON struct {
	Name    string     `json:"name"`
	Shown   bool       `json:"shown"`
	State   string     `json:"state,omitempty"`
	Began   *time.Time `json:"began,omitempty"`
	Seconds float64    `json:"seconds"`
	Note    string     `json:"note,omitempty"`
}

type statementJSON struct {
	User     string `json:"user,omitempty"`
	Database string `json:"database,omitempty"`
	Query    string `json:"query"`
	Text     string `json:"text,omitempty"`
	workJSON
}

type workJSON struct {
	Calls           uint64            `json:"calls"`
	Errors          map[string]uint64 `json:"errors,omitempty"`
	Rows            uint64            `json:"rows"`
	Received        uint64            `json:"received"`
	Sent            uint64            `json:"sent"`
	Latency         float64           `json:"latency"`
	Queue           float64           `json:"queue"`
	Service         float64           `json:"service"`
	Transfer        float64           `json:"transfer"`
	CallsPerSecond  float64           `json:"callsPerSecond"`
	ErrorsPerSecond float64           `json:"errorsPerSecond"`
	RowsPerSecond   float64           `json:"rowsPerSecond"`
	Waiting         float64           `json:"waiting"`
	Mean            *float64          `json:"mean,omitempty"`
	P50             *float64          `json:"p50,omitempty"`
	P95             *float64          `json:"p95,omitempty"`
	P99             *float64          `json:"p99,omitempty"`
	Buckets         []bucketJSON      `json:"buckets,omitempty"`
}

// bucketJSON counts calls; the last one has no bound.
type bucketJSON struct {
	UpTo  *float64 `json:"upTo,omitempty"`
	Calls uint64   `json:"calls"`
}

func newWorkJSON(w work) workJSON {
	j := workJSON{
		Calls: w.Calls, Errors: w.Errors, Rows: w.Rows, Received: w.Received, Sent: w.Sent,
		Latency: w.Latency.Seconds(), Queue: w.Queue.Seconds(), Service: w.Service.Seconds(), Transfer: w.Transfer.Seconds(),
		CallsPerSecond: w.calls, ErrorsPerSecond: w.errors, RowsPerSecond: w.rows, Waiting: w.busy,
		Mean: mean(w.Sums).json(), P50: quantile(w.Buckets, 0.5).json(), P95: quantile(w.Buckets, 0.95).json(), P99: quantile(w.Buckets, 0.99).json(),
	}
	for _, bound := range slices.Sorted(maps.Keys(w.Buckets)) {
		b := bucketJSON{Calls: w.Buckets[bound]}
		if bound != math.MaxInt64 {
			b.UpTo = new(time.Duration(bound).Seconds())
		}
		j.Buckets = append(j.Buckets, b)
	}
	return j
}

// json is the number, or nil where it is not known. What is in the last bucket has its lower end, as with Prometheus.
func (w wait) json() *float64 {
	if !w.known {
		return nil
	}
	return &w.seconds
}
