package lease

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Config is what one Machine needs to know at its start.
type Config struct {
	Self     string // this member's name
	Database string // UID of the Database; messages of another one are refused
	Address  string // this member's IP address, told to those who follow it; empty leaves them to its name
	Witness  bool   // this member never holds data: it votes, and no more
	FirstSeq uint64 // of this run's requests; its low bits are random, so that no answer to an earlier run fits

	// The times are fields for tests only; Default gives the ones that ship.
	Heartbeat time.Duration // H: between two rounds of requests for grants
	Grant     time.Duration // T: how long a grant binds the voter
	Epsilon   time.Duration // subtracted by the leader for clock-rate drift
	Hold      time.Duration // how long a supported candidate has before its voters look elsewhere
	Ask       time.Duration // how long a pre-vote waits for the last answers
	Aside     time.Duration // how long others step aside for a better or named member
	Handicap  time.Duration // how long a leader that failed lets others go first
	Start     time.Duration // how long a winner's server may take to become primary
	HandOver  time.Duration // budget of a hand-over before the stop, else it is called off
	MaxRetry  time.Duration // longest pause between attempts, and so between API reads of a member in need
}

// Default returns the configuration that ships.
func Default(self, database string, firstSeq uint64) Config {
	return Config{
		Self: self, Database: database, FirstSeq: firstSeq,
		Heartbeat: 500 * time.Millisecond,
		Grant:     3 * time.Second,
		Epsilon:   100 * time.Millisecond,
		Hold:      2 * time.Second,
		Ask:       150 * time.Millisecond,
		Aside:     2 * time.Second,
		Handicap:  6 * time.Second,
		Start:     30 * time.Second,
		HandOver:  10 * time.Second,
		MaxRetry:  5 * time.Second,
	}
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	switch {
	case !validName(c.Self):
		return fmt.Errorf("lease config: %q is no member name", c.Self)
	case c.Database == "" || len(c.Database) > maxName:
		return errors.New("lease config: the Database's UID is missing or too long")
	case c.Address != "" && net.ParseIP(c.Address) == nil:
		return fmt.Errorf("lease config: %q is no IP address", c.Address)
	case c.Heartbeat <= 0 || c.Epsilon <= 0:
		return errors.New("lease config: heartbeat and epsilon must be positive")
	case c.Grant < 4*c.Heartbeat:
		return fmt.Errorf("lease config: a grant of %s must outlast four heartbeats of %s", c.Grant, c.Heartbeat)
	case c.Epsilon > c.Grant/4:
		return fmt.Errorf("lease config: epsilon %s is more than a quarter of the grant %s", c.Epsilon, c.Grant)
	case min(c.Hold, c.Ask, c.Aside, c.Handicap, c.Start, c.HandOver, c.MaxRetry) <= 0:
		return errors.New("lease config: every time must be positive")
	}
	return nil
}
