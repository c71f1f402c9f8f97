package driver

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// remembered is what the data volume keeps of configurations, beside the data: a server does not start at all with files that it
// merely refuses while it runs, and a new pod's agent remembers nothing.
type remembered struct {
	// Good were taken by the server last.
	Good map[string]string `json:"good,omitempty"`
	// Refused were refused last, for Fault.
	Refused map[string]string `json:"refused,omitempty"`
	Fault   string            `json:"fault,omitempty"`
	// Trying are those of a start that nobody has seen succeed yet.
	Trying map[string]string `json:"trying,omitempty"`
}

const (
	rememberedName = "config.remembered"
	maxRemembered  = 4 << 20
	neverStarted   = "the server did not start with it"
)

// recall reads once what an earlier process kept. What cannot be read is as if it were not there: the start is tried without it.
func (d *Driver) recall() {
	if d.recalled {
		return
	}
	d.recalled = true
	path := filepath.Join(d.cfg.DataDir, rememberedName)
	if halves, err := filepath.Glob(filepath.Join(d.cfg.DataDir, "."+rememberedName+".*")); err == nil {
		for _, half := range halves {
			_ = os.Remove(half) // of a write that was cut off
		}
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var kept remembered
	if err == nil && info.Size() > maxRemembered {
		err = fs.ErrInvalid
	}
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	if err != nil {
		d.log.Warn("the configuration that the server took last cannot be read", "file", path, "error", err.Error())
		return
	}
	d.good, d.refused, d.trying = kept.Good, kept.Refused, kept.Trying
	if d.refused != nil {
		d.tellFault(kept.Fault)
	}
}

// remember writes it down. A full volume must keep nobody from leading.
func (d *Driver) remember() {
	kept := remembered{Good: d.good, Refused: d.refused, Trying: d.trying}
	if d.refused != nil {
		d.state.Lock()
		kept.Fault = d.configFault
		d.state.Unlock()
	}
	raw, err := json.Marshal(kept)
	if err == nil {
		_, err = d.update(filepath.Join(d.cfg.DataDir, rememberedName), raw)
	}
	if err != nil {
		d.log.Warn("the configuration that the server takes is not kept for a new pod", "error", err.Error())
	}
}

// try notes that the server is about to be started with files that it has not taken yet. If the start before was with the same ones,
// and nobody has seen it succeed, it goes on with the last good ones; Become then gives it the new ones again, and says what is wrong.
func (d *Driver) try(r engine.Role) engine.Role {
	if d.good == nil || maps.Equal(d.good, r.Files) {
		return r
	}
	if d.trying != nil && maps.Equal(d.trying, r.Files) {
		d.log.Warn("the server did not start with its new configuration; it starts with the last that it took")
		d.tellFault(neverStarted)
		r.Files = d.good
		return r
	}
	d.trying = r.Files
	d.remember()
	return r
}

// started: the server has taken its files, as far as a start needs them.
func (d *Driver) started() {
	if d.trying != nil {
		d.trying = nil
		d.remember()
	}
}
