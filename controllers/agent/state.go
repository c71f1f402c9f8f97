package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// maxState bounds an aim, on disk as on the wire.
const maxState = 4 << 20

// memory is what the agent must not forget beside the aim and the promise.
type memory struct {
	// RestartDone is the newest restart token that was carried out.
	RestartDone string `json:"restartDone,omitempty"`
	// Initialised is true once this member has begun the Database: it never does so again.
	Initialised bool `json:"initialised,omitempty"`
	// Shared is true once the Database had more than one voter, until it is to have one instance alone, or a person accepts a loss.
	Shared bool `json:"shared,omitempty"`
	// Recovered is the epoch of the newest recovery that Shared knows of.
	Recovered uint64 `json:"recovered,omitempty"`
}

func (c Config) aimPath() string     { return c.statePath("aim.json") }
func (c Config) memoryPath() string  { return c.statePath("agent.json") }
func (c Config) promisePath() string { return c.statePath("promise.json") }

// loadAim returns the aim on the volume with its revision, and false if there is none or it is for somebody else: a volume may have come
// from another Database.
func loadAim(c Config) (aim engine.Aim, revision string, found bool, err error) {
	var raw json.RawMessage
	found, err = load(c.aimPath(), &raw)
	if err != nil || !found {
		return engine.Aim{}, "", false, err
	}
	if err := json.Unmarshal(raw, &aim); err != nil {
		return engine.Aim{}, "", false, fmt.Errorf("read %s: %w", c.aimPath(), err)
	}
	if misdirected(c, aim) != "" {
		return engine.Aim{}, "", false, nil
	}
	return aim, engine.RevisionOf(raw), true, nil
}

// recalled is the aim on the volume without its switchover or recovery: how long ago that was asked for, the volume does not know. The
// manager sends it again if it still holds, since what is left has no revision.
func recalled(c Config) (aim engine.Aim, revision string, found bool, err error) {
	aim, revision, found, err = loadAim(c)
	if aim.Switchover != nil || aim.Recovery != nil {
		aim.Switchover, aim.Recovery, revision = nil, nil, ""
	}
	return aim, revision, found, err
}

// misdirected says why the aim is not for this agent, or "".
func misdirected(c Config, a engine.Aim) string {
	switch {
	case a.UID != c.UID:
		return fmt.Sprintf("the aim is for Database %s, this agent serves %s", a.UID, c.UID)
	case a.Namespace != c.Namespace || a.Database != c.Database:
		return fmt.Sprintf("the aim is for Database %s/%s, this agent serves %s/%s", a.Namespace, a.Database, c.Namespace, c.Database)
	case a.Member != c.Instance:
		return fmt.Sprintf("the aim is for %s, this agent is %s", a.Member, c.Instance)
	}
	return ""
}

func load(path string, into any) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	raw, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

// save replaces the file so that a power cut leaves the old or the new content.
func save(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	if err := replace(path, raw); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return nil
}

func replace(path string, raw []byte) error {
	next := path + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
