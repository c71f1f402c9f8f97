// Package faults keeps the runs of the fault matrix, so that it goes on where it was interrupted, and tells what they show. The runs
// themselves are tests of tests/e2e.
package faults

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Run is one event that a Database went through, and what its witnesses saw.
type Run struct {
	Event  string    `json:"event"`
	Number int       `json:"number"`
	At     time.Time `json:"at"`

	// Gap is the longest time between two acknowledged writes since the event, in seconds.
	Gap float64 `json:"gap"`
	// Lost acknowledged writes, on the worst instance.
	Lost int `json:"lost"`
	// Second counts acknowledgements that prove two writers at one time.
	Second int `json:"second"`
	// Stale is for how long a deposed instance answered readers as primary, in seconds.
	Stale float64 `json:"stale,omitempty"`
	// Acked, InDoubt and Refused writes, those sent to every instance directly among them.
	Acked   int `json:"acked"`
	InDoubt int `json:"inDoubt"`
	Refused int `json:"refused"`
	// HandOvers by status since the event, oldest first.
	HandOvers []HandOver `json:"handOvers,omitempty"`
	// Whole is how long after the fault's end the Database was ready again, in seconds.
	Whole float64 `json:"whole"`
	// Measure is what the event measures beside the gap, in seconds; zero for nothing.
	Measure float64 `json:"measure,omitempty"`
	// Parts are the gaps of the parts that the event has, one after the other, in seconds; none for one that is a whole.
	Parts []float64 `json:"parts,omitempty"`
	// Problems that make the run a failure, each in a line.
	Problems []string `json:"problems,omitempty"`
}

// HandOver is a change of hands as the Database's status told it.
type HandOver struct {
	Epoch int64  `json:"epoch"`
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	Cause string `json:"cause"`
	Why   string `json:"why,omitempty"`
	// Lost bytes of log with acknowledged writes; nil where status does not know.
	Lost   *int64 `json:"lost,omitempty"`
	Millis int64  `json:"millis"`
	// Steps of the time line, in words; empty where status tells none.
	Steps string `json:"steps,omitempty"`
}

// String for a log.
func (h HandOver) String() string {
	lost := "not known"
	if h.Lost != nil {
		lost = fmt.Sprintf("%d bytes", *h.Lost)
	}
	return fmt.Sprintf("epoch %d: %s to %s in %d ms (%s: %s; %s), lost %s", h.Epoch, h.From, h.To, h.Millis, h.Cause, h.Why, h.Steps, lost)
}

// Book is a directory with one file for each run. Runs of another build belong into another one.
type Book struct{ Dir string }

// Runs of an event so far, by number.
func (b Book) Runs(event string) ([]Run, error) {
	entries, err := os.ReadDir(filepath.Join(b.Dir, event))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the runs of %s: %w", event, err)
	}
	var runs []Run
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".json" {
			continue // one that was being written when the machine stopped
		}
		raw, err := os.ReadFile(filepath.Join(b.Dir, event, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the runs of %s: %w", event, err)
		}
		var r Run
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("read run %s of %s: %w", entry.Name(), event, err)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Number, b.Number) })
	return runs, nil
}

// Next is the number of the next run of an event, from one.
func (b Book) Next(event string) (int, error) {
	runs, err := b.Runs(event)
	if err != nil || len(runs) == 0 {
		return 1, err
	}
	return runs[len(runs)-1].Number + 1, nil
}

// Keep a finished run. An interruption leaves the whole run or none.
func (b Book) Keep(r Run) error {
	dir := filepath.Join(b.Dir, r.Event)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // results are public
		return fmt.Errorf("keep run %d of %s: %w", r.Number, r.Event, err)
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode run %d of %s: %w", r.Number, r.Event, err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%03d.json", r.Number))
	if err := os.WriteFile(path+".part", append(raw, '\n'), 0o644); err != nil { //nolint:gosec // results are public
		return fmt.Errorf("keep run %d of %s: %w", r.Number, r.Event, err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		return fmt.Errorf("keep run %d of %s: %w", r.Number, r.Event, err)
	}
	return nil
}
