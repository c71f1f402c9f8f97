package driver

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHistoriesAreRead(t *testing.T) {
	rows := map[string]struct {
		text string
		want []fork
		bad  bool
	}{
		"none":                 {"", nil, false},
		"two forks":            {"1\t0/3000148\tno recovery target specified\n\n3\t1/A0\tx y\n", []fork{{1, 0x3000148}, {3, 1<<32 + 0xA0}}, false},
		"a reserved number":    {"# Never used\n", nil, false},
		"one that turns back":  {"3\t0/3\n2\t0/4\n", nil, true},
		"no position":          {"1\n", nil, true},
		"a position of nobody": {"1\tx\n", nil, true},
		"no timeline":          {"x\t0/3\n", nil, true},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			got, err := parseHistory(row.text)
			if (err != nil) != row.bad {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(row.want, got, cmp.AllowUnexported(fork{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRelate(t *testing.T) {
	// The upstream is on timeline 4, which came from 2 at 200, which came from 1 at 100.
	up := source{place: place{"s", 4, 300}, history: []fork{{1, 100}, {2, 200}}}
	short := up
	short.segment, short.oldest = 50, 3 // it has the log from 150 on
	rows := map[string]struct {
		m    place
		s    source
		want relation
	}{
		"the same timeline, behind":               {place{"s", 4, 250}, up, follows},
		"the same timeline, even":                 {place{"s", 4, 300}, up, follows},
		"the same timeline, ahead":                {place{"s", 4, 301}, up, ahead},
		"an older one, up to its end":             {place{"s", 2, 200}, up, follows},
		"an older one, past its end":              {place{"s", 2, 201}, up, forked},
		"the oldest one, before its end":          {place{"s", 1, 50}, up, follows},
		"the oldest one, past its end":            {place{"s", 1, 101}, up, forked},
		"one that is not in the history":          {place{"s", 3, 10}, up, forked},
		"a newer one":                             {place{"s", 5, 10}, up, forked},
		"another database":                        {place{"t", 4, 10}, up, foreign},
		"the upstream no longer has what follows": {place{"s", 1, 99}, short, behind},
		"the upstream still has what follows":     {place{"s", 2, 150}, short, follows},
		"what forked is not behind":               {place{"s", 1, 101}, short, forked},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			if got := relate(row.m, row.s); got != row.want {
				t.Errorf("relation %d, want %d", got, row.want)
			}
		})
	}
}

func TestRecordsEndWhereTheNextBegins(t *testing.T) {
	const seg = 16 << 20
	rows := map[string]struct {
		at     lsn
		length uint64
		want   lsn
	}{
		"in a page":       {0x1000028, 50, 0x1000060},
		"at a page's end": {0x1001F00, 0x100, 0x1002000},
		"over a page":     {0x1001F00, 0x108, 0x1002020},
		"over a segment":  {0x1FFFF00, 0x108, 0x2000030},
		"over two pages":  {0x1001F00, 0x100 + 8192 - 24 + 8, 0x1004020},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			if got := recordEnd(row.at, row.length, seg); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func FuzzHistory(f *testing.F) {
	f.Add("1\t0/3000148\tx\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseHistory(text)
		if err != nil {
			return
		}
		for i := 1; i < len(all); i++ {
			if all[i].timeline <= all[i-1].timeline || all[i].end < all[i-1].end {
				t.Errorf("out of order: %v", all)
			}
		}
		if len(all) > strings.Count(text, "\n")+1 {
			t.Errorf("%d forks of %q", len(all), text)
		}
	})
}

// FuzzControl: what pg_controldata says of a damaged file is refused, or it is values that PostgreSQL can have.
func FuzzControl(f *testing.F) {
	const good = "Database system identifier: 7\nBytes per WAL segment: 16777216\nLatest checkpoint's REDO location: 0/3\nMinimum recovery ending location: 0/0\nLatest checkpoint's TimeLineID: 1\nMin recovery ending loc's timeline: 0\n"
	f.Add(good)
	f.Add(strings.Replace(good, "16777216", "3", 1))
	f.Add(strings.Replace(good, "TimeLineID: 1", "TimeLineID: 4294967297", 1))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseControl(text)
		if err != nil {
			return
		}
		if c.system == "" || c.timeline == 0 || c.segment < 1<<20 || c.segment > 1<<30 || c.segment&(c.segment-1) != 0 {
			t.Errorf("%+v of %q", c, text)
		}
		if !strings.Contains(text, fmt.Sprint(c.timeline)) {
			t.Errorf("timeline %d of %q", c.timeline, text)
		}
	})
}

// FuzzRecords: the end of the log that pg_waldump tells is a place where a record can begin, and not before the last one.
func FuzzRecords(f *testing.F) {
	f.Add("rmgr: XLOG        len (rec/tot):     30/    30, tx:          0, lsn: 0/01000028, prev 0/00000000, desc: NEXTOID 1\n")
	f.Add("rmgr: XLOG        len (rec/tot):     24/    24, tx:          0, lsn: 0/01FFFFE8, prev 0/01000028, desc: SWITCH \n")
	f.Add("rmgr: Heap        len (rec/tot):     54/  8246, tx:        731, lsn: 0/01FFFF00, prev 0/01000028, desc: INSERT off 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		const segment = 16 << 20
		end, found, err := lastRecordEnd(text, segment)
		if err != nil || !found {
			return
		}
		m := recordLine().FindAllStringSubmatch(text, -1)
		at, err := parseLSN(m[len(m)-1][3])
		if err != nil {
			t.Fatal(err)
		}
		if end%8 != 0 || end < at {
			t.Errorf("%s after a record at %s", end, at)
		}
	})
}

// FuzzPosition: a position reads back as the same, and sorts as PostgreSQL's do.
func FuzzPosition(f *testing.F) {
	f.Add("0/3000148", "FFFFFFFF/FFFFFFFF")
	f.Add("16/b374d848", "16/B374D848")
	f.Add("-1/+2", "1_0/0")
	f.Fuzz(func(t *testing.T, one, other string) {
		a, err := parseLSN(one)
		if err != nil {
			return
		}
		if again, err := parseLSN(a.String()); err != nil || again != a {
			t.Errorf("%q is %s, which is %s (%v)", one, a, again, err)
		}
		if len(strings.Trim(one, "0123456789abcdefABCDEF/")) > 0 {
			t.Errorf("%q was taken for a position", one)
		}
		b, err := parseLSN(other)
		if err != nil {
			return
		}
		high := func(l lsn) uint64 { return uint64(l) >> 32 }
		if high(a) < high(b) && a >= b {
			t.Errorf("%s is not before %s", a, b)
		}
	})
}

// FuzzFloors: a configuration is never lowered, and every line that is added is one that PostgreSQL reads as meant.
func FuzzFloors(f *testing.F) {
	f.Add("max_connections = '10'\nmax_wal_senders = '5'\n", "max_connections setting:              100\nmax_wal_senders setting: 4\n")
	f.Add("max_connections = '10'\n", "max_connections setting: -9223372036854775808\n")
	f.Fuzz(func(t *testing.T, parameters, control string) {
		least := floors(control)
		for line := range strings.Lines(raise(parameters, least)) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
			n, err := strconv.ParseInt(strings.Trim(value, "'"), 10, 64)
			if !ok || err != nil || n != least[name] || n <= 0 {
				t.Errorf("%q for %v", line, least)
			}
			if !strings.Contains(parameters, name+" = '") {
				t.Errorf("%s was not set before", name)
			}
		}
	})
}
