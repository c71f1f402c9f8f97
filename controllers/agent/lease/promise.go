package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Promise is what a voter must never forget: it grants nothing below Epoch,
// and at Epoch only to Candidate.
type Promise struct {
	Epoch     uint64 `json:"epoch"`             // highest granted or supported
	Candidate string `json:"candidate"`         // to whom
	Lease     uint64 `json:"lease"`             // highest epoch known to have stood in the Lease; a lower one there was restored from a backup
	Version   uint64 `json:"version,omitempty"` // highest version known of the Lease's record: within one epoch it tells a backup
	Fenced    bool   `json:"fenced"`            // the manager's last word: this instance must not serve, also after a restart
	Released  bool   `json:"released"`          // Candidate is this member and its leadership at Epoch is over
	Run       uint64 `json:"run,omitempty"`     // how often an agent has come back to a leadership of its own: the numbers of its requests grow with it
}

// Validate says what is wrong with the promise.
func (p Promise) Validate() error {
	switch {
	case p.Epoch > maxEpoch || p.Lease > maxEpoch || p.Version > maxEpoch:
		return fmt.Errorf("promise: epoch %d or %d, or version %d, is out of bounds", p.Epoch, p.Lease, p.Version)
	case p.Run > maxRun:
		return fmt.Errorf("promise: run %d is out of bounds", p.Run)
	case p.Epoch > 0 && !validName(p.Candidate):
		return fmt.Errorf("promise: bad candidate %q", p.Candidate)
	case p.Epoch == 0 && p.Candidate != "":
		return fmt.Errorf("promise: candidate %q without an epoch", p.Candidate)
	}
	return nil
}

const maxPromise = 4 << 10

// PromiseFile keeps the promise in one file on the data volume, outside the
// directory that a re-clone wipes.
type PromiseFile struct{ Path string }

// Load returns the promise, and false when there is none. A file that cannot
// be read or understood is an error: to forget a promise is worse than to stop.
func (f PromiseFile) Load() (Promise, bool, error) {
	file, err := os.Open(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Promise{}, false, nil
	}
	if err != nil {
		return Promise{}, false, fmt.Errorf("load promise: %w", err)
	}
	defer func() { _ = file.Close() }() // read only: nothing to lose
	b, err := io.ReadAll(io.LimitReader(file, maxPromise+1))
	if err != nil {
		return Promise{}, false, fmt.Errorf("load promise %s: %w", f.Path, err)
	}
	p, err := DecodePromise(b)
	if err != nil {
		return Promise{}, false, fmt.Errorf("load promise %s: %w", f.Path, err)
	}
	return p, true, nil
}

// DecodePromise reads a promise, also of a later release as long as this one can keep it.
func DecodePromise(b []byte) (Promise, error) {
	if len(b) > maxPromise {
		return Promise{}, fmt.Errorf("promise: more than %d bytes", maxPromise)
	}
	var p Promise
	if err := decodeFormat(b, "epoch", &p); err != nil {
		return Promise{}, fmt.Errorf("promise: %w", err)
	}
	return p, p.Validate()
}

// Save replaces the promise so that it survives a power cut: file and
// directory are both fsynced before it returns nil.
func (f PromiseFile) Save(p Promise) error {
	if err := p.Validate(); err != nil {
		return err
	}
	b, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode promise: %w", err)
	}
	if err := f.replace(b); err != nil {
		return fmt.Errorf("save promise: %w", err)
	}
	return nil
}

func (f PromiseFile) replace(b []byte) error {
	next := f.Path + ".next"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, f.Path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.Path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
