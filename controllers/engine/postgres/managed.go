package postgres

import "strings"

// Sensitive are the parameters that a hot standby needs at least as high as its primary has them: a standby with less stops
// following. They are raised on replicas first and lowered on the primary first.
func Sensitive() []string {
	return []string{"max_connections", "max_locks_per_transaction", "max_prepared_transactions", "max_wal_senders", "max_worker_processes"}
}

// managed says why a parameter is Plimsoll's own, or "".
func managed(name string) string {
	switch {
	case strings.HasPrefix(name, "archive_"), name == "restore_command", name == "recovery_end_command":
		return "Plimsoll looks after the archive of the write-ahead log"
	case strings.HasPrefix(name, "recovery_target"):
		return "Plimsoll decides what an instance recovers to"
	case strings.HasPrefix(name, "ssl"):
		return "Plimsoll serves TLS from spec.tls and changes the files when certificates do"
	case strings.HasPrefix(name, "unix_socket_"):
		return "the agent reaches the server over its socket"
	case strings.HasPrefix(name, "syslog_"), strings.HasPrefix(name, "bonjour"), name == "event_source":
		return "a container has no such service"
	case strings.HasPrefix(name, "plimsoll"):
		return "names that begin with plimsoll are its own"
	}
	return managedByName()[name]
}

func managedByName() map[string]string {
	const (
		paths    = "the place of files in the pod is fixed"
		logs     = "the agent reads the server's log from its standard error, in a form of its own"
		loss     = "it hides or causes the loss of data; a damaged instance is replaced by a new copy instead"
		follow   = "Plimsoll decides whom an instance follows"
		sessions = "Plimsoll uses it to hand the leadership over"
	)
	return map[string]string{
		"listen_addresses": "Services and probes expect the server on every address of its pod",
		"port":             "Services and certificates expect port 5432",

		"config_file": paths, "hba_file": "set spec.postgres.hba instead", "ident_file": paths, "data_directory": paths, "external_pid_file": paths,
		"include": paths, "include_dir": paths, "include_if_exists": paths, "stats_temp_directory": paths, "krb_server_keyfile": paths,

		"primary_conninfo": follow, "primary_slot_name": follow, "promote_trigger_file": follow, "wal_receiver_create_temp_slot": follow,
		"synchronous_standby_names": "it follows from spec.replication.synchronous and the voters",
		"hot_standby":               "replicas answer reads and the agent's questions",
		"cluster_name":              "it is the name of the instance",
		"recovery_min_apply_delay":  "a replica that lags on purpose cannot take over",
		"wal_log_hints":             "an old primary needs it to follow again without a new copy",
		"restart_after_crash":       "the agent decides what a crash means",

		"log_destination": logs, "logging_collector": logs, "log_line_prefix": logs, "log_timezone": logs, "lc_messages": logs,
		"log_directory": logs, "log_filename": logs, "log_file_mode": logs, "log_rotation_age": logs, "log_rotation_size": logs, "log_truncate_on_rotation": logs,

		"default_transaction_read_only": sessions,
		"password_encryption":           "passwords are kept as SCRAM-SHA-256 only",
		"db_user_namespace":             "it changes the names of login roles",
		"allow_alter_system":            "ALTER SYSTEM would differ from spec.parameters; it stays off",

		"data_sync_retry": loss, "ignore_checksum_failure": loss, "ignore_invalid_pages": loss, "ignore_system_indexes": loss,
		"zero_damaged_pages": loss, "allow_system_table_mods": loss, "wal_consistency_checking": "it is a tool for PostgreSQL's own developers",
		"exit_on_error": loss, "session_replication_role": loss,
		"pre_auth_delay": "it is a tool for PostgreSQL's own developers", "post_auth_delay": "it is a tool for PostgreSQL's own developers",
	}
}

// refused says why that value of a parameter that may be set is not taken, or "".
func refused(name, value string, replicas int32) string {
	switch name {
	case "fsync", "full_page_writes":
		if isOff(value) {
			return "must stay on: without it a crash destroys the data"
		}
	case "wal_level":
		if strings.EqualFold(value, "minimal") {
			return "must be replica or logical: replicas follow the log"
		}
	case "autovacuum":
		if isOff(value) {
			return "must stay on: without it the server stops taking writes one day"
		}
	case "superuser_reserved_connections":
		if n, err := inUnit(value, ""); err == nil && n < 3 {
			return "must be 3 or more: the agent needs connections when clients have taken the rest"
		}
	case "max_connections":
		if n, err := inUnit(value, ""); err == nil && n < 10 {
			return "must be 10 or more: some connections are kept for the agent"
		}
	case "max_wal_senders", "max_replication_slots":
		if n, err := inUnit(value, ""); err == nil && n < float64(replicas+2) {
			return "must be spec.replicas + 2 or more: each replica needs one, and so does a new copy"
		}
	}
	return ""
}
