package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRenderedFiles(t *testing.T) {
	update := os.Getenv("UPDATE_GOLDEN") != ""
	type hosts struct{ URL, CA string }
	tests := map[string]any{
		"kubelet.yaml":    kubeletValues(2, "/state/pki", 24*1024*mib, 3),
		"containerd.toml": map[string]string{"Registry": registry, "Hosts": "/state/conf/hosts"},
		"pods.conflist":   map[string]string{"PodCIDR": podCIDR(2)},
		"hosts.toml":      hosts{URL: "https://" + registry + ":5443", CA: "/state/pki/ca.crt"},
		"registry.yaml": struct {
			Root, PKI string
			Port      int
			TLS       bool
		}{"/state/registry", "/state/pki", 5443, true},
		"nodes.yaml":   []struct{ Name, Zone, PodCIDR string }{{"node1", zone(1), podCIDR(1)}, {"node2", zone(2), podCIDR(2)}},
		"coredns.yaml": map[string]string{"Version": "1.2.3"},
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := render(name, data)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "golden", name)
			if update {
				if err := replaceFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("differs from %s (UPDATE_GOLDEN=1 rewrites it):\n%s", golden, got)
			}
		})
	}
}

func TestRenderRefusesAMissingValue(t *testing.T) {
	if _, err := render("kubelet.yaml", map[string]string{"IP": "x"}); err == nil {
		t.Error("rendered a kubelet's configuration without a node's name")
	}
}

func TestZonesRepeatAfterThree(t *testing.T) {
	var got []string
	for i := range 5 {
		got = append(got, zone(i+1))
	}
	if want := "zone-a zone-b zone-c zone-a zone-b"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestIndexTakesNamesAndNumbers(t *testing.T) {
	c := &Cluster{state: state{Nodes: 3}}
	for name, want := range map[string]int{"node1": 1, "3": 3, "node4": 0, "0": 0, "control": 0, "": 0} {
		got, err := c.index(name)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %d, %v, want %d", name, got, err, want)
		}
	}
}

func TestReadyWantsNewsSinceTheStart(t *testing.T) {
	start := time.Now()
	var l nodeList
	add := func(name, status string, at time.Time) {
		n := l.Items
		l.Items = append(n, struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct {
					Type, Status      string
					LastHeartbeatTime time.Time
				}
			}
		}{})
		item := &l.Items[len(l.Items)-1]
		item.Metadata.Name = name
		item.Status.Conditions = append(item.Status.Conditions, struct {
			Type, Status      string
			LastHeartbeatTime time.Time
		}{"Ready", status, at})
	}
	add("fresh", "True", start.Add(time.Second))
	add("stale", "True", start.Add(-time.Hour))
	add("dead", "Unknown", start.Add(time.Second))
	if got := l.ready(start); !got["fresh"] || got["stale"] || got["dead"] {
		t.Errorf("got %v, want only fresh", got)
	}
	if got := l.ready(time.Time{}); !got["stale"] {
		t.Errorf("got %v, want stale too when any time will do", got)
	}
}

func TestCertificatesVerifyAndAreKept(t *testing.T) {
	p := pki{dir: t.TempDir()}
	if err := makeAPICertificates(p); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(p.crt("apiserver"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(p.crt("apiserver"), p.key("apiserver"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(p.crt("ca"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1"}); err != nil {
		t.Error(err)
	}
	if err := makeAPICertificates(p); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(p.crt("apiserver")); err != nil || string(again) != string(first) {
		t.Errorf("a second call replaced the certificate (%v)", err)
	}
}

func TestRegistryNames(t *testing.T) {
	for ref, want := range map[string]string{"postgres:15": "postgres:15 library/postgres:15", "team/app:1": "team/app:1"} {
		if got := strings.Join(registryNames(ref), " "); got != want {
			t.Errorf("%s: got %s, want %s", ref, got, want)
		}
	}
}
