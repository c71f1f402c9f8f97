package driver

import (
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

func FuzzControl(f *testing.F) {
	f.Add("Database system identifier: 7\nBytes per WAL segment: 16777216\nLatest checkpoint's REDO location: 0/3\nMinimum recovery ending location: 0/0\nLatest checkpoint's TimeLineID: 1\nMin recovery ending loc's timeline: 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseControl(text)
		if err == nil && (c.system == "" || c.segment == 0) {
			t.Errorf("%+v of %q", c, text)
		}
		_, _, _ = lastRecordEnd(text, 16<<20)
	})
}
