package agent

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Config of an agent. Directories, ports and times that are left empty are those of a pod.
type Config struct {
	// Namespace, Database, UID and Instance that this agent serves.
	Namespace, Database, UID, Instance string
	// Address is the pod's IP address, told to the members that replicate from here; empty leaves them to its name.
	Address string
	// Version of this binary, for the report.
	Version string

	// StateDir is the agent's own directory on the data volume; MemberTLSDir holds its certificate.
	StateDir, MemberTLSDir string
	// DataDir and WALDir are measured for the report; ServerTLSDir is watched for new certificates.
	DataDir, WALDir, ServerTLSDir string
	// CgroupDir is where the container's own cgroup is mounted.
	CgroupDir string
	// ViewSocket is where the probe of the node and those who watch come to.
	ViewSocket string
	// Host to listen on; empty for every address.
	Host string
	// AgentPort and HealthPort to listen on.
	AgentPort, HealthPort int

	// StopFast is how long the server gets to stop where a new start or another role waits for it; after it the server is killed.
	StopFast time.Duration
	// StopLong is how long it gets where nobody waits: replicas and the only voter, fenced, hibernated or leaving. A server that is
	// killed must recover at its next start, which may take longer than its last checkpoint would have.
	StopLong time.Duration
	// Leave is how long all may take after SIGTERM, the hand-over with it, before the server is killed.
	Leave time.Duration
	// Still is how long a replica may stand still behind its leader before its server is started again, and as long once more before its
	// data is copied anew: one minute. Turn is what each further replica by name waits longer, 20 s: what stops several is not mended on
	// all at once.
	Still, Turn time.Duration
}

func (c Config) withDefaults() Config {
	text := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	text(&c.StateDir, engine.StateDir)
	text(&c.MemberTLSDir, engine.MemberTLSDir)
	text(&c.ServerTLSDir, engine.ServerTLSDir)
	text(&c.DataDir, engine.DataDir)
	text(&c.CgroupDir, "/sys/fs/cgroup")
	text(&c.ViewSocket, view.Socket)
	text(&c.WALDir, engine.WALDir)
	text(&c.Version, "unknown")
	if c.AgentPort == 0 {
		c.AgentPort = engine.AgentPort
	}
	if c.HealthPort == 0 {
		c.HealthPort = engine.HealthPort
	}
	span := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	span(&c.StopFast, 20*time.Second)
	span(&c.StopLong, engine.TerminationGrace-engine.TerminationReserve)
	span(&c.Leave, engine.TerminationGrace-engine.TerminationReserve)
	span(&c.Still, time.Minute)
	span(&c.Turn, 20*time.Second)
	return c
}

func (c Config) validate() error {
	for name, value := range map[string]string{
		engine.EnvNamespace: c.Namespace, engine.EnvDatabase: c.Database, engine.EnvUID: c.UID, engine.EnvInstance: c.Instance,
	} {
		if value == "" {
			return fmt.Errorf("environment variable %s is empty: the manager sets it in every pod that it makes", name)
		}
	}
	if c.AgentPort == c.HealthPort {
		return errors.New("agent and health port are the same")
	}
	return nil
}

func (c Config) statePath(name string) string { return filepath.Join(c.StateDir, name) }

func (c Config) bounds() bounds { return bounds{still: c.Still, turn: c.Turn} }
