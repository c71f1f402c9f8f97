package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The time line of a switchover, read from what the members logged: where its gap in writes goes.

// moments of a hand-over in the order of their names, and how each is known from a line of a member's log.
func moments() []moment {
	is := func(field, value string) func(map[string]any) bool {
		return func(e map[string]any) bool { return e[field] == value }
	}
	says := func(text string) func(map[string]any) bool {
		return func(e map[string]any) bool { said, _ := e["msg"].(string); return strings.Contains(said, text) }
	}
	return []moment{
		{"quiescing", is("phase", "Quiescing"), false},
		{"stopping", is("phase", "Stopping"), false},
		{"released", is("event", "Released"), false},
		{"elected", is("event", "Elected"), false},
		{"routed", is("event", "Routed"), false},
		{"promote asked", says("received promote request"), false},
		{"recovery complete", says("archive recovery complete"), false},
		{"promoted", is("event", "Promoted"), false},
		{"first to attach", says("candidate for quorum synchronous standby"), false},
		{"last to attach", says("candidate for quorum synchronous standby"), true},
	}
}

type moment struct {
	name string
	of   func(entry map[string]any) bool
	last bool
}

// timeline finds when each moment came, after the first; a moment that never came is not there.
func (d *database) timeline(since time.Time) map[string]time.Duration {
	at := map[string]time.Time{}
	for _, m := range d.members {
		f, err := os.Open(filepath.Join(d.dir, m.name, "log"))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e map[string]any
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				continue
			}
			text, _ := e["time"].(string)
			when, err := time.Parse(time.RFC3339Nano, text)
			if err != nil || when.Before(since) {
				continue
			}
			for _, k := range moments() {
				old, ok := at[k.name]
				if k.of(e) && (!ok || k.last == when.After(old)) {
					at[k.name] = when
				}
			}
		}
		_ = f.Close()
	}
	begin := at[moments()[0].name]
	line := map[string]time.Duration{}
	for name, when := range at {
		line[name] = when.Sub(begin)
	}
	return line
}

// lines are the time lines and the gaps of several switchovers.
type lines struct {
	of   []map[string]time.Duration
	gaps []time.Duration
}

func (l *lines) log(t *testing.T) {
	t.Helper()
	if len(l.gaps) == 0 {
		return
	}
	t.Logf("time line of %d switchovers, after the old leader was told to refuse writes:", len(l.of))
	for _, k := range moments() {
		var all []time.Duration
		for _, line := range l.of {
			if v, ok := line[k.name]; ok {
				all = append(all, v)
			}
		}
		t.Logf("  %-18s %s", k.name, spread(all))
	}
	t.Logf("  %-18s %s", "gap in writes", spread(l.gaps))
}

func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "never"
	}
	slices.Sort(all)
	return fmt.Sprintf("median %4d ms, p95 %4d ms, worst %4d ms", all[len(all)/2].Milliseconds(), all[(len(all)*95+99)/100-1].Milliseconds(), all[len(all)-1].Milliseconds())
}

// setting is a number from the environment.
func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

const slowSource = `#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
static ino_t last;
static void wait_for(int fd, long us) {
	struct stat s;
	if (fstat(fd, &s) == 0 && s.st_blocks >> 11 > 8 && s.st_ino != last) { last = s.st_ino; usleep(us * 8); }
	usleep(us);
}
int fsync(int fd) { wait_for(fd, DELAY); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { usleep(DELAY); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
`

// slowDisk builds a library that makes each fsync of the servers wait: PLIMSOLL_TEST_SLOW_FSYNC milliseconds, and nine times that
// for the copy of a whole segment, once. The agents' own few are not slowed.
func (d *database) slowDisk(t *testing.T) string {
	t.Helper()
	wait := setting("PLIMSOLL_TEST_SLOW_FSYNC", 0)
	if wait == 0 {
		return ""
	}
	source, library := filepath.Join(d.dir, "slow.c"), filepath.Join(d.dir, "slow.so")
	if err := os.WriteFile(source, []byte(slowSource), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", fmt.Sprintf("-DDELAY=%d", wait*1000), "-o", library, source, "-ldl").CombinedOutput()
	if err != nil {
		t.Skipf("no compiler for a slow disk: %v: %s", err, out)
	}
	return library
}
