package plugin

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// done is what was done on one instance between two of its tables.
type done struct {
	seconds float64
	rows    []view.Row
}

// between is what was done from the earlier table to the later one; without an earlier one, and if it is of another probe, since the later one's
// probe began. A row that lost its place to another in between is not in it.
func between(earlier *view.Table, later view.Table) done {
	if earlier == nil || !earlier.Began.Equal(later.Began) {
		return done{seconds: max(0, later.At.Sub(later.Began).Seconds()), rows: slices.DeleteFunc(slices.Clone(later.Rows), func(r view.Row) bool { return idle(r.Sums) })}
	}
	before := map[place]view.Sums{}
	for _, r := range earlier.Rows {
		before[placeOf(r)] = r.Sums
	}
	d := done{seconds: max(0, later.At.Sub(earlier.At).Seconds())}
	for _, r := range later.Rows {
		r.Sums = since(before[placeOf(r)], r.Sums)
		if !idle(r.Sums) {
			d.rows = append(d.rows, r)
		}
	}
	return d
}

// place is what tells rows of one table apart.
type place struct{ role, user, database, query string }

func placeOf(r view.Row) place { return place{r.Role, r.User, r.Database, r.Query} }

func idle(s view.Sums) bool { return s.Calls == 0 && s.Rows == 0 }

// since is what was added. Sums that went down are those of a row that lost its place and got it again: all of it is new.
func since(before, now view.Sums) view.Sums {
	d := now
	if shrunk(before, now) {
		return d
	}
	d.Calls -= before.Calls
	d.Rows -= before.Rows
	d.Received -= before.Received
	d.Sent -= before.Sent
	d.Latency -= before.Latency
	d.Queue -= before.Queue
	d.Service -= before.Service
	d.Transfer -= before.Transfer
	d.Errors = less(now.Errors, before.Errors)
	if d.Buckets = nil; bucketed(before) && bucketed(now) {
		d.Buckets = less(now.Buckets, before.Buckets)
	}
	return d
}

func shrunk(before, now view.Sums) bool {
	return now.Calls < before.Calls || now.Rows < before.Rows || now.Received < before.Received || now.Sent < before.Sent ||
		now.Latency < before.Latency || now.Queue < before.Queue || now.Service < before.Service || now.Transfer < before.Transfer ||
		fewer(before.Errors, now.Errors) || bucketed(now) && fewer(before.Buckets, now.Buckets)
}

// bucketed says whether sums have all their buckets: rows of a table that was too long have none.
func bucketed(s view.Sums) bool { return len(s.Buckets) > 0 || s.Latency == 0 }

func fewer[K comparable](before, now map[K]uint64) bool {
	for k, n := range before {
		if now[k] < n {
			return true
		}
	}
	return false
}

// less leaves out what is the same.
func less[K comparable](now, before map[K]uint64) map[K]uint64 {
	d := map[K]uint64{}
	for k, n := range now {
		if n > before[k] {
			d[k] = n - before[k]
		}
	}
	return d
}

// plus adds sums up; neither is changed.
func plus(a, b view.Sums) view.Sums {
	a.Calls += b.Calls
	a.Rows += b.Rows
	a.Received += b.Received
	a.Sent += b.Sent
	a.Latency += b.Latency
	a.Queue += b.Queue
	a.Service += b.Service
	a.Transfer += b.Transfer
	a.Errors, a.Buckets = both(a.Errors, b.Errors), both(a.Buckets, b.Buckets)
	return a
}

func both[K comparable](a, b map[K]uint64) map[K]uint64 {
	sum := map[K]uint64{}
	maps.Copy(sum, a)
	for k, n := range b {
		sum[k] += n
	}
	return sum
}

// work is what clients had done for them: by one statement of one user in one database, or by some together, on all instances.
type work struct {
	user, database, query, text string
	view.Sums
	// calls, errors and rows of a second, and busy is how many clients waited at a time: seconds of Latency in a second. Those of several
	// instances are added up, each by the time between its own tables.
	calls, errors, rows, busy float64
}

func (w work) plus(o work) work {
	w.Sums = plus(w.Sums, o.Sums)
	w.calls += o.calls
	w.errors += o.errors
	w.rows += o.rows
	w.busy += o.busy
	// Of the ways in which it was written always the same one.
	w.text = max(w.text, o.text)
	return w
}

func workOf(r view.Row, seconds float64) work {
	w := work{user: r.User, database: r.Database, query: r.Query, text: r.Text, Sums: r.Sums}
	if seconds > 0 {
		w.calls, w.errors, w.rows = float64(r.Calls)/seconds, float64(failures(r.Sums))/seconds, float64(r.Rows)/seconds
		w.busy = r.Latency.Seconds() / seconds
	}
	return w
}

func failures(s view.Sums) uint64 {
	var n uint64
	for _, of := range s.Errors {
		n += of
	}
	return n
}

// statements are what was done on instances, those of a user, a database and a query added up; a role leaves out what was done in another one.
func statements(all []done, role string) []work {
	by := map[place]work{}
	for _, d := range all {
		for _, r := range d.rows {
			if role != "" && r.Role != role {
				continue
			}
			of := place{"", r.User, r.Database, r.Query}
			w := workOf(r, d.seconds)
			if sum, ok := by[of]; ok {
				w = sum.plus(w)
			}
			by[of] = w
		}
	}
	return slices.Collect(maps.Values(by))
}

// together is the sum of works, which is of no user, database and query.
func together(all []work) work {
	var sum work
	for _, w := range all {
		sum = sum.plus(w)
	}
	sum.text = ""
	return sum
}

// orders are what statements can be sorted by, the default first.
func orders() []string {
	return []string{"time", "calls", "mean", "p50", "p95", "p99", "errors", "rows"}
}

// sorted puts the greatest first.
func sorted(all []work, by string) []work {
	keys := make(map[place]float64, len(all))
	of := func(w work) place { return place{"", w.user, w.database, w.query} }
	for _, w := range all {
		keys[of(w)] = key(w, by)
	}
	return slices.SortedFunc(slices.Values(all), func(a, b work) int {
		return cmp.Or(cmp.Compare(keys[of(b)], keys[of(a)]), cmp.Compare(b.busy, a.busy), strings.Compare(a.query, b.query), strings.Compare(a.user, b.user), strings.Compare(a.database, b.database))
	})
}

func key(w work, by string) float64 {
	switch by {
	case "calls":
		return w.calls
	case "mean":
		return mean(w.Sums).seconds
	case "p50":
		return quantile(w.Buckets, 0.5).seconds
	case "p95":
		return quantile(w.Buckets, 0.95).seconds
	case "p99":
		return quantile(w.Buckets, 0.99).seconds
	case "errors":
		return w.errors
	case "rows":
		return w.rows
	default:
		return w.busy
	}
}

// wait is how long clients waited; the zero value is not known.
type wait struct {
	seconds float64
	known   bool
	// beyond says that it was longer than that.
	beyond bool
}

// perOctave is how many buckets are between a time and twice that time.
const perOctave = 8

// longest is the lower end of the last bucket, which has no bound: the probe's others end at 2^(47/8) seconds.
func longest() float64 { return math.Exp2(47.0 / perOctave) }

// timed counts the calls whose beginning was seen, so that their latency is known.
func timed(buckets map[int64]uint64) uint64 {
	var n uint64
	for _, of := range buckets {
		n += of
	}
	return n
}

func mean(s view.Sums) wait {
	n := timed(s.Buckets)
	if n == 0 {
		return wait{}
	}
	return wait{seconds: s.Latency.Seconds() / float64(n), known: true}
}

// quantile (0 to 1) as Prometheus estimates it for native histograms: between the ends of a bucket on a logarithmic scale.
func quantile(buckets map[int64]uint64, q float64) wait {
	rank, below := q*float64(timed(buckets)), 0.0
	for _, bound := range slices.Sorted(maps.Keys(buckets)) {
		n := float64(buckets[bound])
		if n == 0 || below+n < rank {
			below += n
			continue
		}
		if bound == math.MaxInt64 {
			return wait{seconds: longest(), known: true, beyond: true}
		}
		return wait{seconds: time.Duration(bound).Seconds() * math.Exp2(((rank-below)/n-1)/perOctave), known: true}
	}
	return wait{}
}

// clients adds up the open connections of workloads to several instances, most first.
func clients(all [][]view.Client) []view.Client {
	open := map[view.Client]uint64{}
	for _, some := range all {
		for _, c := range some {
			who := c
			who.Open = 0
			open[who] += c.Open
		}
	}
	sum := make([]view.Client, 0, len(open))
	for who, n := range open {
		who.Open = n
		sum = append(sum, who)
	}
	slices.SortFunc(sum, func(a, b view.Client) int {
		return cmp.Or(cmp.Compare(b.Open, a.Open), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return sum
}
