package driver

import "testing"

func TestAReplicaStartsWithNoLessThanItsLogAsksFor(t *testing.T) {
	control := "max_connections setting:              200\nmax_worker_processes setting:         8\nmax_locks_per_xact setting:           128\ntrack_commit_timestamp setting:       off\n"
	for name, tc := range map[string]struct{ parameters, want string }{
		"what is enough stays":                      {"max_connections = '300'\nmax_locks_per_transaction = '128'\n", ""},
		"what is too low is raised to the log's":    {"max_connections = '100'\nmax_locks_per_transaction = '96'\n", "max_connections = '200'\nmax_locks_per_transaction = '128'\n"},
		"what the log does not speak of stays":      {"max_prepared_transactions = '0'\n", ""},
		"what the configuration does not set stays": {"work_mem = '8MB'\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := raise(tc.parameters, floors(control)); got != tc.want {
				t.Errorf("raised by %q, want %q", got, tc.want)
			}
		})
	}
}
