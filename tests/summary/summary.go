// Package summary counts the results of go test's JSON streams.
package summary

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// maxLines of one failure are kept: its head and its tail, in equal parts.
const maxLines = 300

// Summary adds up streams and single checks. The zero value is ready for use.
type Summary struct {
	Passed, Failed, Skipped int
	failures                []failure
	skips                   []string
	late                    []failure    // failed beside others, and passed alone
	passed                  map[key]bool // tests that are no part of another
}

// failure of a test, or of what is none: then test is the zero value.
type failure struct {
	name  string
	lines []string
	test  key
}

// event is what `go test -json` writes, one a line.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

type key struct{ pkg, test string }

// top is the test that this is a part of, or itself.
func (k key) top() key {
	k.test, _, _ = strings.Cut(k.test, "/")
	return k
}

// Read adds one stream. Lines that are no JSON (a panic of the go command itself, say) are kept with the stream's name: when the
// stream holds them and no failure, they are one.
func (s *Summary) Read(name string, stream io.Reader) error {
	r := reader{open: map[key][]string{}, failed: map[string]bool{}, into: s}
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 0, 64<<10), 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.loose = append(r.loose, lines.Text())
			continue
		}
		r.take(e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the results of %s: %w", name, err)
	}
	r.end(name)
	return nil
}

// Tests that failed, by package, of those that are no part of another; nil if anything else failed, too: a package that broke off, say.
func (s *Summary) Tests() map[string][]string {
	found := map[string][]string{}
	for _, f := range s.failures {
		if f.test.test == "" {
			return nil
		}
		if top := f.test.top(); !slices.Contains(found[top.pkg], top.test) {
			found[top.pkg] = append(found[top.pkg], top.test)
		}
	}
	return found
}

// ReadAgain adds a stream whose failed tests were run once more, alone, and that second stream: a test that passed there was late beside
// others. It counts as passed, and is told.
func (s *Summary) ReadAgain(name string, first, second io.Reader) error {
	var one, two Summary
	if err := errors.Join(one.Read(name, first), two.Read(name+", again", second)); err != nil {
		return err
	}
	s.Passed, s.Skipped, s.skips = s.Passed+one.Passed, s.Skipped+one.Skipped, append(s.skips, one.skips...)
	again := two.Tests()
	for _, f := range one.failures {
		top := f.test.top()
		if two.passed[top] && again != nil && !slices.Contains(again[top.pkg], top.test) {
			s.Passed++
			s.late = append(s.late, f)
			continue
		}
		s.Failed++
		s.failures = append(s.failures, f)
	}
	return nil
}

// Check adds a check that is no go test: a linter, say.
func (s *Summary) Check(name string, err error, output string) {
	if err == nil {
		s.Passed++
		return
	}
	s.fail(name+": "+err.Error(), strings.Split(strings.TrimRight(output, "\n"), "\n"))
}

// Skip adds a check that did not run, and why.
func (s *Summary) Skip(name, why string) {
	s.Skipped++
	s.skips = append(s.skips, name+": "+why)
}

// OK is true when something ran and nothing failed.
func (s *Summary) OK() bool { return s.Failed == 0 && s.Passed > 0 }

// Print writes each failure in full, what was skipped, the name of each failure once more with what it said (who reads the
// end of a log alone is to know what failed), and the closing line "N passed, N failed, N skipped".
func (s *Summary) Print(w io.Writer) {
	for _, f := range s.failures {
		fmt.Fprintf(w, "\n--- FAIL %s\n", f.name)
		for _, line := range shorten(f.lines) {
			fmt.Fprintln(w, "    "+line)
		}
	}
	if len(s.skips) > 0 {
		fmt.Fprintln(w, "\nskipped:")
		sort.Strings(s.skips)
		for _, skip := range shorten(s.skips) {
			fmt.Fprintln(w, "    "+skip)
		}
	}
	list(w, "failed beside others, passed alone:", s.late)
	list(w, "failed:", s.failures)
	if s.Passed+s.Failed == 0 {
		fmt.Fprintln(w, "\nno test ran")
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", s.Passed, s.Failed, s.Skipped)
}

// list the names of failures with what they said; nothing if there are none.
func list(w io.Writer, title string, all []failure) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\n"+title)
	var lines []string
	for _, f := range all {
		lines = append(append(lines, f.name), said(f.lines)...)
	}
	for _, line := range shorten(lines) {
		fmt.Fprintln(w, "    "+line)
	}
}

func (s *Summary) fail(name string, lines []string) {
	s.Failed++
	s.failures = append(s.failures, failure{name: name, lines: lines})
}

func (s *Summary) pass(k key) {
	s.Passed++
	if s.passed == nil {
		s.passed = map[key]bool{}
	}
	s.passed[k] = true
}

func shorten(lines []string) []string {
	if len(lines) <= maxLines {
		return lines
	}
	gap := fmt.Sprintf("… %d lines …", len(lines)-maxLines)
	out := append([]string{}, lines[:maxLines/2]...)
	return append(append(out, gap), lines[len(lines)-maxLines/2:]...)
}

// reader follows one stream. The output of a test is kept only while the test runs.
type reader struct {
	open   map[key][]string
	failed map[string]bool // packages with a failure of their own
	loose  []string
	into   *Summary
}

func (r *reader) take(e event) {
	if e.Package == "" {
		e.Package = e.ImportPath
	}
	k := key{e.Package, e.Test}
	switch e.Action {
	case "start", "run":
		r.open[k] = []string{}
	case "output", "build-output":
		r.open[k] = append(r.open[k], strings.TrimRight(e.Output, "\n"))
	case "pass":
		r.close(k, func([]string) {
			if e.Test != "" {
				r.into.pass(k)
			}
		})
	case "skip":
		r.close(k, func(lines []string) {
			if e.Test != "" {
				r.into.Skip(e.Package+" "+e.Test, reason(lines))
			}
		})
	case "fail":
		r.close(k, func(lines []string) { r.failure(k, lines) })
	case "build-fail":
		r.close(k, func(lines []string) {
			r.into.fail(e.Package+" does not build", lines)
			r.failed[strings.Fields(e.Package)[0]] = true
		})
	}
}

func (r *reader) close(k key, with func(lines []string)) {
	with(r.open[k])
	delete(r.open, k)
}

// failure counts a failed test, and a failed package only where no test of it explains the failure: it did not build, or it
// panicked, or ran out of time.
func (r *reader) failure(k key, lines []string) {
	if k.test != "" {
		r.failed[k.pkg] = true
		r.into.fail(k.pkg+" "+k.test, lines)
		r.into.failures[len(r.into.failures)-1].test = k
		return
	}
	for _, unfinished := range r.unfinished(k.pkg) {
		r.failed[k.pkg] = true
		r.into.fail(k.pkg+" "+unfinished.test+" did not end", append(r.open[unfinished], lines...))
		delete(r.open, unfinished)
	}
	if !r.failed[k.pkg] {
		r.into.fail(k.pkg, lines)
	}
	r.failed[k.pkg] = true
}

func (r *reader) unfinished(pkg string) []key {
	var found []key
	for k := range r.open {
		if k.test != "" && (pkg == "" || k.pkg == pkg) {
			found = append(found, k)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].pkg+found[i].test < found[j].pkg+found[j].test })
	return found
}

// end counts what the stream broke off in.
func (r *reader) end(name string) {
	for _, k := range r.unfinished("") {
		r.into.fail(k.pkg+" "+k.test+" did not end", r.open[k])
		r.failed[k.pkg] = true
	}
	if len(r.loose) > 0 && len(r.failed) == 0 {
		r.into.fail(name+" wrote what is no result", r.loose)
	}
}

// maxSaid lines of what a failed test said stand under its name at the end, each of maxSaidBytes.
const (
	maxSaid      = 4
	maxSaidBytes = 300
)

// inTest begins what a test says with t.Error and its kind; a log line of the program under test does not look like it.
var inTest = regexp.MustCompile(`^\s*\w+_test\.go:\d+: `)

// said is the first and last of what a failed test wrote itself: the cause is among the first, and what it ended with among the last.
func said(lines []string) []string {
	var found []string
	for _, line := range lines {
		if inTest.MatchString(line) {
			line = strings.TrimSpace(line)
			found = append(found, "    "+line[:min(len(line), maxSaidBytes)])
		}
	}
	if len(found) > maxSaid {
		found = append(found[:maxSaid/2], found[len(found)-maxSaid/2:]...)
	}
	return found
}

// reason is what a skipped test said: its last line that is not one of the frame's.
func reason(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}
