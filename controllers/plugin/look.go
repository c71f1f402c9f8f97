package plugin

import (
	stdbytes "bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// agentProgram is the one that runs, as the first process: the file that a pod began with may be of an earlier release than an agent that took its place.
const agentProgram = "/proc/1/exe"

// What an agent can be asked to pass on.
const (
	wantTable = "table"
	wantTold  = "told"
)

const (
	// lookAgain is the pause before an instance is asked again, to which the way was lost.
	lookAgain = 5 * time.Second
	// partTime is how long a kubectl may take to end after its standard input.
	partTime = 3 * time.Second
	// mostWords of what kubectl and the agent say on standard error are kept: the last ones.
	mostWords = 1 << 10
)

var (
	errNoProbe = errors.New("no probe tells of it: see kubectl plimsoll probe status")
	errEarlier = errors.New("the plimsoll-agent in its pod is of an earlier release, which cannot show this")
)

// sight is what came of one instance: a line, or why no more come.
type sight struct {
	instance string
	line     line
	err      error
}

// line is a view.Line whose statements stay as they came: a probe may tell more of them than this plugin knows.
type line struct {
	view.Line
	Told []json.RawMessage `json:"told"`
}

// watched is a Database and which of its instances are to be looked at.
func (s *session) watched(cmd *cobra.Command, name, on string) (*v1.Database, []string, error) {
	k, err := s.connect()
	if err != nil {
		return nil, nil, err
	}
	d, err := k.database(cmd.Context(), name)
	if err != nil {
		return nil, nil, err
	}
	names, err := instances(d, on)
	return d, names, err
}

// instances that are to be looked at: the named one, or all.
func instances(d *v1.Database, named string) ([]string, error) {
	if named != "" {
		if err := instance(d, named); err != nil {
			return nil, fmt.Errorf("--instance %s: %w", named, err)
		}
		return []string{named}, nil
	}
	var names []string
	for _, i := range d.Status.Instances {
		names = append(names, i.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("database %s has no instances yet: see kubectl plimsoll status %s", d.Name, d.Name)
	}
	return names, nil
}

// look has the agents of instances pass on what is wanted, until the context ends or the function is called that it gives, which waits for the
// end of all that was begun. An instance to which the way is lost is asked again after a pause; a pause of 0 leaves it at that.
func (s *session) look(ctx context.Context, cmd *cobra.Command, namespace string, names []string, want string, again time.Duration) (<-chan sight, func()) {
	ctx, cancel := context.WithCancel(ctx)
	sights := make(chan sight)
	send := func(seen sight) error {
		select {
		case sights <- seen:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	flags := append(given(cmd), "--stdin")
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			for {
				err := s.lookAt(ctx, flags, namespace, name, want, func(l line) error { return send(sight{instance: name, line: l}) })
				// A terminal interrupts kubectl, too: the end of it is no news when all is about to end.
				if !pause(ctx, partTime/10) || send(sight{instance: name, err: err}) != nil || again == 0 || !pause(ctx, again) {
					return
				}
			}
		})
	}
	return sights, func() {
		cancel()
		all.Wait()
	}
}

// lookAt passes on lines of one instance's agent until its kubectl ends, and says why it did.
func (s *session) lookAt(ctx context.Context, flags []string, namespace, pod, want string, take func(line) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := s.kubectl(ctx, flags, namespace, pod, []string{agentProgram, "view", want})
	held, err := run.StdinPipe()
	if err != nil {
		return fmt.Errorf("make a pipe for %s: %w", s.Kubectl, err)
	}
	lines, words := &lineWriter{take: take, failed: cancel}, &lastWords{}
	run.Stdout, run.Stderr = lines, words
	// The program in the pod ends when its standard input does, and kubectl with it. Killed at once, kubectl could leave it behind.
	run.Cancel, run.WaitDelay = held.Close, partTime
	err = run.Run()
	var exit *exec.ExitError
	switch {
	case lines.err != nil:
		return lines.err
	case errors.As(err, &exit) && exit.ExitCode() == 2:
		return errEarlier
	case errors.As(err, &exit):
		return fmt.Errorf("%s exec ended with code %d: %s", path.Base(s.Kubectl), exit.ExitCode(), or(words.String(), "it said nothing"))
	case err != nil:
		return fmt.Errorf("run %s: %w", s.Kubectl, err)
	}
	return errors.New("its agent ended the view")
}

// lineWriter takes lines of JSON apart.
type lineWriter struct {
	take   func(line) error
	failed func() // is called at the first error, after which nothing more is taken
	rest   []byte
	err    error
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for w.err == nil {
		one, rest, whole := stdbytes.Cut(w.rest, []byte("\n"))
		if len(one) >= view.MaxLine {
			w.err = fmt.Errorf("its agent sends a line of more than %d bytes: use the plugin of the operator's release", view.MaxLine)
			break
		}
		if !whole {
			return len(p), nil
		}
		w.rest = rest
		w.err = w.read(one)
	}
	w.failed()
	return 0, w.err
}

func (w *lineWriter) read(one []byte) error {
	var l line
	if err := json.Unmarshal(one, &l); err != nil {
		return fmt.Errorf("its agent sends what cannot be read (%w): use the plugin of the operator's release", err)
	}
	if l.Refused != "" {
		return fmt.Errorf("its agent refuses: %s", printable(l.Refused))
	}
	return w.take(l)
}

// lastWords keeps the end of what is written to it.
type lastWords struct{ kept []byte }

// Write implements io.Writer.
func (w *lastWords) Write(p []byte) (int, error) {
	w.kept = append(w.kept, p...)
	w.kept = w.kept[max(0, len(w.kept)-mostWords):]
	return len(p), nil
}

// String is all of it on one line.
func (w *lastWords) String() string {
	var said []string
	for one := range strings.Lines(string(w.kept)) {
		if one = printable(one); one != "" {
			said = append(said, one)
		}
	}
	return strings.Join(said, "; ")
}

// printable is a text on one line. Clients write texts and names: none may move a terminal's cursor, or more.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " "))
}

// cut shortens a text to so many columns.
func cut(text string, columns int) string {
	if runes := []rune(text); len(runes) > columns {
		return string(runes[:columns-1]) + "…"
	}
	return text
}

// pause waits; false if the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
