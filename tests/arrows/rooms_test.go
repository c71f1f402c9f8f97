package arrows

// module is the product's; the names of rooms are directories below it.
const module = "github.com/plimsoll-dev/plimsoll-operator"

// room is one folder of the house. A package belongs to the longest room that its path begins with.
type room struct {
	path string
	// may are the rooms whose packages it may import beside its own; "*" is every product room.
	may []string
	// pure rooms know no client, no clock, no network and no file system.
	pure bool
}

// rooms is docs/architecture.md, said once more for a machine. A package in none of them fails: give it a room here and a line
// there in the same commit.
func rooms() []room {
	api := []string{"api/v1"}
	seam := []string{"api/v1", "controllers/engine"}
	return []room{
		{path: "api/v1", pure: true},
		{path: "api/view", pure: true},
		{path: "api/v1beta1", may: api, pure: true},
		{path: "api/v1alpha1", may: []string{"api/v1", "api/v1beta1"}, pure: true},

		{path: "controllers/engine", may: api, pure: true},
		{path: "controllers/engine/postgres", may: seam, pure: true},
		{path: "controllers/engine/postgres/driver", may: append(seam, "controllers/engine/postgres")},
		{path: "controllers/desired", may: seam, pure: true},
		{path: "controllers/policy", may: seam, pure: true},
		{path: "controllers/certificate", may: seam, pure: true},
		{path: "controllers/ssa", may: api},
		{path: "controllers/admission", may: append(seam, "api/v1beta1", "api/v1alpha1", "controllers/policy")},
		{path: "controllers/admission/serving"},
		{path: "controllers/scrape"},
		{path: "controllers/database", may: append(seam, "controllers/desired", "controllers/policy", "controllers/certificate",
			"controllers/ssa", "controllers/agent/client")},
		{path: "controllers/probe", may: append(api, "controllers/desired", "controllers/ssa")},
		{path: "controllers/agent", may: append(seam, "api/view", "controllers/agent/lease", "controllers/agent/kube", "controllers/agent/client")},
		{path: "controllers/agent/lease", may: append(seam, "controllers/agent/kube")},
		{path: "controllers/agent/kube", may: seam},
		{path: "controllers/agent/client", may: seam},
		{path: "controllers/plugin", may: append(seam, "api/view", "controllers/agent/client")},

		{path: "bpf/event", pure: true},
		{path: "bpf/statement", pure: true},
		{path: "bpf/site"},
		{path: "bpf/window"},
		{path: "bpf/query", may: []string{"bpf/event", "bpf/statement", "bpf/site", "bpf/window"}},
		{path: "bpf/redis", may: []string{"bpf/event", "bpf/site", "bpf/window"}},
		{path: "bpf/connection", may: []string{"bpf/event"}},
		{path: "bpf/attribute", may: api},
		{path: "bpf/aggregate", may: []string{"bpf/event", "bpf/statement"}, pure: true},
		{path: "bpf/export", may: []string{"bpf/event", "bpf/aggregate"}},
		{path: "bpf/journal", may: []string{"bpf/event", "bpf/aggregate"}},
		{path: "bpf/view", may: []string{"api/view"}},
		{path: "bpf/node", may: []string{"api/view", "bpf/view", "bpf/event", "bpf/query", "bpf/redis", "bpf/connection", "bpf/attribute", "bpf/aggregate", "bpf/export", "bpf/journal"}},

		{path: "cmd", may: []string{"*"}},
		{path: "config"},
		{path: "tests", may: []string{"*", "tests"}},
	}
}

// pureFiles are pure halves of rooms that also act.
func pureFiles() []string {
	return []string{
		"controllers/database/decide*.go", "controllers/database/summarise*.go", "controllers/probe/decide*.go", "controllers/probe/summarise*.go",
		"controllers/plugin/difference.go",
	}
}

// notForPure are imports by which a pure room would reach out of itself.
func notForPure() []string {
	return []string{
		"net/http", "os", "os/exec", "os/signal", "io/ioutil", "log", "log/slog", "syscall", "database/sql", "math/rand", "math/rand/v2",
		"github.com/jackc/pgx", "k8s.io/client-go", "k8s.io/utils/clock", "sigs.k8s.io/controller-runtime",
	}
}

// typesForPure are what a pure room may still name of such an import: types that only describe.
func typesForPure() map[string][]string {
	return map[string][]string{"sigs.k8s.io/controller-runtime/pkg/client": {"Object", "ObjectKey", "ObjectKeyFromObject"}}
}

// notInPure are functions by which it would ask a clock, wait, or dial.
func notInPure() map[string][]string {
	return map[string][]string{
		"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
		"net":     {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialUnix", "Listen", "ListenPacket", "ListenTCP", "LookupHost", "LookupIP", "LookupAddr", "LookupCNAME", "LookupSRV", "Interfaces", "InterfaceAddrs"},
		"context": {"WithTimeout", "WithDeadline"},
	}
}

// binary is a program and what may not be linked into it, by the beginning of the import path.
type binary struct {
	path  string
	never []string
	why   string
}

func binaries() []binary {
	return []binary{{
		path:  "cmd/plimsoll-agent",
		never: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/sigstore", "github.com/google/go-containerregistry"},
		why:   "it runs in every database pod and must stay small",
	}}
}

// writers are the only rooms that may change objects in the API server. The plugin acts as the person who calls it; serving keeps
// the webhooks' certificate, which is no part of any Database.
func writers() []string {
	return []string{"controllers/ssa", "controllers/agent/kube", "controllers/plugin", "controllers/admission/serving"}
}

// nouns that are no name for a room: what they would hold lives with its caller.
func notNames() []string {
	return []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "shared", "pkg", "lib", "internal"}
}
