package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPinsAgreeWithTheirModules(t *testing.T) {
	for _, p := range pins() {
		if p.In == "" {
			continue
		}
		mod, err := os.ReadFile(filepath.Join(p.In, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(mod), p.Module+" "+p.Version+"\n") && !strings.Contains(string(mod), p.Module+" "+p.Version+" // indirect\n") {
			t.Errorf("%s: %s does not require %s %s", p.Name, p.In, p.Module, p.Version)
		}
	}
}

func TestPinsBuildTheAPIFirstAndEachNameOnce(t *testing.T) {
	seen := map[string]bool{}
	var order []bool
	for _, p := range pins() {
		if seen[p.Name] {
			t.Errorf("%s is pinned twice", p.Name)
		}
		seen[p.Name] = true
		order = append(order, p.API)
		if !p.Own && !strings.HasPrefix(p.Package, p.Module) {
			t.Errorf("%s: package %s is not in module %s", p.Name, p.Package, p.Module)
		}
	}
	if first := slices.Index(order, false); first != 6 || slices.Contains(order[first:], true) {
		t.Errorf("order of API binaries: %v, want the first six", order)
	}
}

func TestKeyChangesWithEverythingThatDecidesTheContent(t *testing.T) {
	base := pin{Name: "a", Version: "v1", Package: "p", Tags: "t", LDFlags: "-s"}
	variants := map[string]pin{"version": base, "package": base, "tags": base, "flags": base}
	change := func(name string, f func(*pin)) {
		p := variants[name]
		f(&p)
		variants[name] = p
	}
	change("version", func(p *pin) { p.Version = "v2" })
	change("package", func(p *pin) { p.Package = "q" })
	change("tags", func(p *pin) { p.Tags = "" })
	change("flags", func(p *pin) { p.LDFlags = "" })
	for name, p := range variants {
		if p.key("go1") == base.key("go1") {
			t.Errorf("another %s, the same key", name)
		}
	}
	if base.key("go1") == base.key("go2") {
		t.Error("another go, the same key")
	}
}

func TestKeyOfOurOwnProgramChangesWithItsSource(t *testing.T) {
	room := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(room, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func() string {
		t.Helper()
		k, err := builder{room: room, goVersion: "go1"}.key(pin{Name: "a", In: ".", Own: true})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		write(name, "one")
	}
	seen := map[string]bool{key(): true}
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		write(name, "two")
		if k := key(); seen[k] {
			t.Errorf("another %s, the same key", name)
		} else {
			seen[k] = true
		}
	}
}

func TestCommand(t *testing.T) {
	tests := map[string]struct {
		pin  pin
		want string
	}{
		"a pin with its own module is built from there": {
			pin{Name: "x", Package: "m/cmd/x", In: "binaries/m", Tags: "a,b", LDFlags: "-s -w"}, "build|-tags|a,b|-ldflags|-s -w|-o|/out/x|m/cmd/x",
		},
		"other pins are installed at their version": {
			pin{Name: "x", Package: "m/cmd/x", Version: "v1.2.3", LDFlags: "-s -w"}, "install|-ldflags|-s -w|m/cmd/x@v1.2.3",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(tt.pin.command("/out/x"), "|"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
