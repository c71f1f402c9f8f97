package postgres

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

const mib = 1 << 20

// fixed are the parameters that hold whatever the spec says. The agent reads log lines of exactly this prefix: epoch seconds,
// process, SQLSTATE, kind of backend, remote host, user and database, tab-separated. The server's own JSON log needs a collector
// that writes files, on a volume that may be full, and PostgreSQL 15; standard error works for every release and image.
func fixed(major int) map[string]string {
	all := map[string]string{
		"default_transaction_read_only": "off",
		"hot_standby":                   "on",
		"lc_messages":                   "C",
		"log_destination":               "stderr",
		"log_line_prefix":               LogLinePrefix,
		"log_timezone":                  "UTC",
		"logging_collector":             "off",
		"password_encryption":           "scram-sha-256",
		"recovery_target_timeline":      "latest",
		"restart_after_crash":           "off",
		"wal_log_hints":                 "on",
	}
	if major >= 17 {
		all["allow_alter_system"] = "off"
	}
	return all
}

// LogLinePrefix begins every line of the server's log that is no continuation (those begin with a tab).
const LogLinePrefix = `%n\t%p\t%e\t%b\t%h\t%u\t%d\t`

// defaults are what Plimsoll sets where spec.parameters does not.
func defaults(d *v1.Database) map[string]string {
	all := map[string]string{
		"log_checkpoints":                "on",
		"log_lock_waits":                 "on",
		"log_autovacuum_min_duration":    "1min",
		"log_temp_files":                 "64MB",
		"max_connections":                "100",
		"max_locks_per_transaction":      "64",
		"max_prepared_transactions":      "0",
		"max_replication_slots":          "32",
		"max_wal_senders":                "32",
		"max_worker_processes":           "8",
		"tcp_keepalives_count":           "3",
		"tcp_keepalives_idle":            "30",
		"tcp_keepalives_interval":        "10",
		"wal_level":                      "replica",
		"wal_receiver_status_interval":   "1s",
		"wal_receiver_timeout":           "5s",
		"wal_retrieve_retry_interval":    "200ms",
		"wal_sender_timeout":             "5s",
		"superuser_reserved_connections": "5",
		// Huge pages that a node has and a pod may not use end the server with SIGBUS.
		"huge_pages": hugePages(d.Spec.Resources),
	}
	for name, value := range memory(d.Spec.Resources) {
		all[name] = value
	}
	for name, value := range walRoom(d.Spec.Storage) {
		all[name] = value
	}
	return all
}

func hugePages(r corev1.ResourceRequirements) string {
	for name := range r.Limits {
		if len(name) > len(corev1.ResourceHugePagesPrefix) && name[:len(corev1.ResourceHugePagesPrefix)] == corev1.ResourceHugePagesPrefix {
			return "try"
		}
	}
	return "off"
}

// What PostgreSQL takes at the most, in MB: 2^30-1 and 2^31-1 pages of 8 kB, and 2^31-1 MB of log.
const (
	mostBuffers = (1<<30 - 1) / 128
	mostCache   = (1<<31 - 1) / 128
	mostLog     = 1<<31 - 1
)

// memory shares what the container may use: a quarter for shared buffers, the page cache as the planner should expect it. Without
// a limit or a request nothing is known, and small values are safe.
func memory(r corev1.ResourceRequirements) map[string]string {
	quantity, ok := r.Limits[corev1.ResourceMemory]
	if !ok {
		quantity, ok = r.Requests[corev1.ResourceMemory]
	}
	total := quantity.Value() / mib
	if !ok || total <= 0 {
		return map[string]string{"shared_buffers": "128MB", "effective_cache_size": "512MB", "maintenance_work_mem": "64MB"}
	}
	return map[string]string{
		"shared_buffers":       megabytes(min(mostBuffers, max(16, total/4))),
		"effective_cache_size": megabytes(min(mostCache, max(32, total*3/4))),
		"maintenance_work_mem": megabytes(min(2048, max(16, total/16))),
	}
}

// walRoom bounds the log by the room that there is. A slot of a replica that is gone may keep what the volume can spare and no
// more: the replica is copied anew then, which beats a primary that stops on a full disk.
func walRoom(s v1.StorageSpec) map[string]string {
	room, share := s.Size.Value()/mib, int64(25)
	if s.WAL != nil {
		room, share = s.WAL.Size.Value()/mib, 60
	}
	most := min(1024, max(80, room/10)) // max_wal_size
	return map[string]string{
		"max_wal_size":           megabytes(most),
		"min_wal_size":           megabytes(min(80, max(32, most/2))),
		"wal_keep_size":          megabytes(min(512, max(32, room/20))),
		"max_slot_wal_keep_size": megabytes(min(mostLog, max(64, room*share/100))),
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%dMB", n) }

// Effective are the parameters that Plimsoll sets by itself, for status.effective.parameters.
func (e *Engine) Effective(d *v1.Database) map[string]string {
	v, err := parseVersion(d.Spec.Version)
	if err != nil {
		return nil
	}
	all := e.parameters(d)
	own := fixed(v.major)
	for name, value := range d.Spec.Parameters {
		name = lower(name)
		// What was refused does not hold: there the default does.
		if _, mine := own[name]; !mine && e.wrong(name, value, v.major, replicas(d)) == "" {
			delete(all, name)
		}
	}
	return all
}

// parameters are all that the configuration holds, by name in lower case.
func (e *Engine) parameters(d *v1.Database) map[string]string {
	v, err := parseVersion(d.Spec.Version)
	if err != nil {
		return nil
	}
	all := defaults(d)
	for name, value := range d.Spec.Parameters {
		name = lower(name)
		// What validation refuses may have got in while no webhook ran; it must not reach the server.
		if e.wrong(name, value, v.major, replicas(d)) == "" {
			all[name] = value
		}
	}
	for name, value := range fixed(v.major) {
		all[name] = value
	}
	return all
}

func replicas(d *v1.Database) int32 {
	if d.Spec.Replicas == nil {
		return 3
	}
	return *d.Spec.Replicas
}
