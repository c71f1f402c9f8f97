// Package postgres is PostgreSQL as the manager sees it: its configuration, its parameters, its part of a pod and the order in which instances change.
package postgres

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// Port that the server listens on.
	Port = 5432
	// Superuser of the server. It is reachable only over the socket inside the pod, by the operating system's user of the server.
	Superuser = "postgres"
	// ReplicationUser is the login role that members use among each other. It has no password: a member's certificate is its proof.
	ReplicationUser = "plimsoll_replication"
	// SystemDatabase holds Plimsoll's own notes, in the schema SystemSchema.
	SystemDatabase = "postgres"
	// SystemSchema in SystemDatabase.
	SystemSchema = "plimsoll"
	// MemberPrefix begins the common name of a member's certificate.
	MemberPrefix = engine.MemberCommonName
	// IdentMap is the name of the map in pg_ident.conf that names who may be the superuser or the replication role.
	IdentMap = "plimsoll"

	// FileParameters is the file of parameters. The driver adds what only a pod knows.
	FileParameters = "plimsoll.conf"
	// FileHBA says who may connect.
	FileHBA = "pg_hba.conf"
	// FileIdent says which certificate is which role.
	FileIdent = "pg_ident.conf"

	// MinMajor is the oldest PostgreSQL release that Plimsoll knows.
	MinMajor = 14
	// MaxMajor is the newest.
	MaxMajor = 18
)

// Options of the engine.
type Options struct {
	// ImagePattern of the default image; %s stands for spec.version. Empty means the official image.
	ImagePattern string
	// RunAsUser that the default image wants. Zero means 999, that of the official image.
	RunAsUser int64
}

// Engine is PostgreSQL's engine.Engine.
type Engine struct {
	options   Options
	catalogue catalogue
	name      *regexp.Regexp
}

var _ engine.Engine = (*Engine)(nil)

// New makes the engine.
func New(o Options) *Engine {
	if o.ImagePattern == "" {
		o.ImagePattern = "docker.io/library/postgres:%s"
	}
	if o.RunAsUser == 0 {
		o.RunAsUser = 999
	}
	return &Engine{options: o, catalogue: readCatalogue(parametersTSV), name: parameterName()}
}

// Name of the engine.
func (e *Engine) Name() v1.EngineName { return v1.EnginePostgres }

// Parts are what PostgreSQL adds to a pod.
func (e *Engine) Parts(d *v1.Database) engine.Parts {
	return engine.Parts{
		Name:      "postgresql",
		Image:     strings.ReplaceAll(e.options.ImagePattern, "%s", d.Spec.Version),
		RunAsUser: e.options.RunAsUser,
		Port:      corev1.ContainerPort{Name: "postgres", ContainerPort: Port, Protocol: corev1.ProtocolTCP},
	}
}

// image that the instances of d should run.
func (e *Engine) image(d *v1.Database) string {
	if d.Spec.Image != "" {
		return d.Spec.Image
	}
	return e.Parts(d).Image
}

// InstanceName is the name of the instance with that number.
func InstanceName(database string, ordinal int32) string {
	return fmt.Sprintf("%s-%d", database, ordinal)
}

// SlotName is the name of a member's replication slot: slots know no hyphen or dot.
func SlotName(member string) string {
	return strings.NewReplacer("-", "_", ".", "_").Replace(member)
}

// version is a release of PostgreSQL; parts that are not given are zero.
type version struct{ major, minor, patch int }

func parseVersion(text string) (version, error) {
	fields := strings.Split(text, ".")
	if len(fields) > 3 {
		return version{}, fmt.Errorf("%q is no version: write it as 17 or 15.18", text)
	}
	var n [3]int
	for i, field := range fields {
		v, err := strconv.Atoi(field)
		if err != nil || v < 0 {
			return version{}, fmt.Errorf("%q is no version: write it as 17 or 15.18", text)
		}
		n[i] = v
	}
	return version{n[0], n[1], n[2]}, nil
}

func (v version) before(w version) bool {
	if v.major != w.major {
		return v.major < w.major
	}
	if v.minor != w.minor {
		return v.minor < w.minor
	}
	return v.patch < w.patch
}
