// Package alerts holds the alerts of config/prometheus against series that fire them and series that do not, by Prometheus' own promtool.
package alerts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtool is Debian's, which the suite installs.
const promtool = "/usr/bin/promtool"

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

// rules of config/prometheus, and a file of them as Prometheus reads it.
func rules(t *testing.T) ([]rule, string) {
	t.Helper()
	raw, err := os.ReadFile("../../config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Kind string         `json:"kind"`
		Spec map[string]any `json:"spec"`
	}
	var typed struct {
		Spec struct {
			Groups []group `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(raw, &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, &object); err != nil || object.Kind != "PrometheusRule" {
		t.Fatalf("a %s: %v", object.Kind, err)
	}
	if err := yaml.Unmarshal(raw, &typed); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range typed.Spec.Groups {
		all = append(all, g.Rules...)
	}
	return all, file
}

// bare rules have no annotations, which promtool would else compare, too.
func bare(t *testing.T) ([]rule, string) {
	t.Helper()
	all, _ := rules(t)
	var plain []map[string]any
	for _, r := range all {
		p := map[string]any{"alert": r.Alert, "expr": r.Expr, "labels": r.Labels}
		if r.For != "" {
			p["for"] = r.For
		}
		plain = append(plain, p)
	}
	raw, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "plimsoll", "rules": plain}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bare.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return all, file
}

func run(t *testing.T, args ...string) error {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func TestEachAlertSaysWhatToDo(t *testing.T) {
	all, file := rules(t)
	if err := run(t, "check", "rules", file); err != nil {
		t.Error(err)
	}
	for _, r := range all {
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s does not say what is the matter and what to do", r.Alert)
		}
	}
}

// TestEachMetricOfAnAlertIsInTheReference, so that none waits for series that nobody has.
func TestEachMetricOfAnAlertIsInTheReference(t *testing.T) {
	all, _ := rules(t)
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		named := false
		for _, word := range strings.FieldsFunc(r.Expr, func(c rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_", c) }) {
			if !strings.HasPrefix(word, "plimsoll_") {
				continue
			}
			named = true
			if !strings.Contains(string(reference), "`"+word+"`") {
				t.Errorf("%s asks for %s, which docs/reference/metrics.md does not have", r.Alert, word)
			}
		}
		if !named {
			t.Errorf("%s asks for no metric of ours", r.Alert)
		}
	}
}

// moment is a set of series, a minute apart each value, and the alerts that fire at a time: each by its name and the values of its labels.
type moment struct {
	series []string
	at     string
	fires  []string
}

func moments() map[string]moment {
	of := func(series ...string) []string { return append(series, `plimsoll_report_streams 3x120`) }
	const shop = `namespace="shop",database="orders"`
	const one = shop + `,instance="orders-1"`
	return map[string]moment{
		"all is well": {of(
			`plimsoll_database_instances{`+shop+`,role="primary"} 1x120`, `plimsoll_database_instances{`+shop+`,role="replica"} 2x120`, `plimsoll_database_instances{`+shop+`,role="unknown"} 0x120`,
			`plimsoll_instance_ready{`+one+`} 1x120`, `plimsoll_hand_overs_total{cause="failover"} 4x120`, `plimsoll_hand_overs_lossy_total 0x120`,
			`plimsoll_instance_lag_bytes{`+one+`} 1000x120`, `plimsoll_instance_volume_used_bytes{`+one+`,volume="data"} 50x120`, `plimsoll_instance_volume_size_bytes{`+one+`,volume="data"} 100x120`,
			`plimsoll_instance_slot_retained_bytes{`+one+`,slot="s"} 1000x120`, `plimsoll_instance_connections{`+one+`} 50x120`, `plimsoll_instance_max_connections{`+one+`} 100x120`,
			`plimsoll_instance_memory_kills_total{`+one+`} 2x120`, `plimsoll_certificate_expiry_timestamp_seconds{`+shop+`,name="server"} 864000x120`,
			`plimsoll_reconciles_total{kind="Database",phase="Running",result="ok"} 0+10x120`, `plimsoll_reconciles_total{kind="Database",phase="Running",result="error"} 0+1x120`,
			`plimsoll_instance_statements_total{`+one+`,role="primary"} 0+100x120`, `plimsoll_instance_statement_errors_total{`+one+`,role="primary",sqlstate_class="23"} 0+50x120`,
			`plimsoll_probe_instances{state="measured"} 3x120`, `plimsoll_probe_instances{state="partly"} 0x120`, `plimsoll_probe_lost_total{reason="unsynced"} 0+1x120`,
		), "2h", nil},
		"nobody leads for less than a minute": {of(
			`plimsoll_database_instances{`+shop+`,role="primary"} 1 1 0 1`, `plimsoll_database_instances{`+shop+`,role="replica"} 2 2 2 2`,
		), "2m", nil},
		"nobody leads": {of(
			`plimsoll_database_instances{`+shop+`,role="primary"} 1 0x10`, `plimsoll_database_instances{`+shop+`,role="replica"} 2x11`,
		), "5m", []string{"PlimsollDatabaseDown shop orders"}},
		"hibernated":               {of(`plimsoll_database_instances{`+shop+`,role="primary"} 0x30`, `plimsoll_database_instances{`+shop+`,role="replica"} 0x30`), "30m", nil},
		"an instance starts":       {of(`plimsoll_instance_ready{` + one + `} 0x8 1x10`), "15m", nil},
		"an instance does not":     {of(`plimsoll_instance_ready{` + one + `} 0x20`), "15m", []string{"PlimsollInstanceNotReady shop orders orders-1"}},
		"an instance is not heard": {of(`plimsoll_database_instances{`+shop+`,role="primary"} 1x20`, `plimsoll_database_instances{`+shop+`,role="unknown"} 1x20`), "15m", []string{"PlimsollInstanceSilent shop orders"}},
		"writes were lost":         {of(`plimsoll_hand_overs_lossy_total 0x5 1x5`), "8m", []string{"PlimsollWritesLost"}},
		"a node comes and goes":    {of(`plimsoll_hand_overs_total{cause="failover"} 0 0+1x20`), "20m", []string{"PlimsollFailsOverAgainAndAgain"}},
		"a replica is behind":      {of(`plimsoll_instance_lag_bytes{` + one + `} 400000000x20`), "15m", []string{"PlimsollReplicaBehind shop orders orders-1"}},
		"a volume fills": {of(
			`plimsoll_instance_volume_used_bytes{`+one+`,volume="wal"} 90x20`, `plimsoll_instance_volume_size_bytes{`+one+`,volume="wal"} 100x20`,
		), "15m", []string{"PlimsollVolumeFills shop orders orders-1 wal"}},
		"a volume is nearly full": {of(
			`plimsoll_instance_volume_used_bytes{`+one+`,volume="data"} 97x5`, `plimsoll_instance_volume_size_bytes{`+one+`,volume="data"} 100x5`,
		), "3m", []string{"PlimsollVolumeNearlyFull shop orders orders-1 data"}},
		"a slot that nobody reads": {of(`plimsoll_instance_slot_retained_bytes{` + one + `,slot="old"} 5000000000x20`), "15m", []string{"PlimsollSlotKeepsLog shop orders orders-1 old"}},
		"connections run out": {of(
			`plimsoll_instance_connections{`+one+`} 95x20`, `plimsoll_instance_max_connections{`+one+`} 100x20`,
		), "10m", []string{"PlimsollConnectionsNearlyUsedUp shop orders orders-1"}},
		"out of memory":                    {of(`plimsoll_instance_memory_kills_total{` + one + `} 0x5 1x10`), "8m", []string{"PlimsollOutOfMemory shop orders orders-1"}},
		"a certificate that nobody renews": {of(`plimsoll_certificate_expiry_timestamp_seconds{` + shop + `,name="server"} 90000x30`), "20m", []string{"PlimsollCertificateEnds shop orders server"}},
		"no manager":                       {[]string{`up 1x30`}, "15m", []string{"PlimsollManagerAbsent"}},
		"passes fail": {of(
			`plimsoll_reconciles_total{kind="Database",phase="Running",result="ok"} 0+1x40`, `plimsoll_reconciles_total{kind="Database",phase="Running",result="error"} 0+5x40`,
		), "40m", []string{"PlimsollReconcileFails Database"}},
		"statements fail": {of(
			`plimsoll_instance_statements_total{`+one+`,role="primary"} 0+100x40`, `plimsoll_instance_statement_errors_total{`+one+`,role="primary",sqlstate_class="42"} 0+10x40`,
		), "40m", []string{"PlimsollStatementsFail shop orders"}},
		"a program that cannot be probed": {of(`plimsoll_probe_instances{state="partly"} 1x30`), "20m", []string{"PlimsollNotAllMeasured"}},
		"statements that are not counted": {of(`plimsoll_probe_lost_total{reason="framing"} 0+2x40`), "40m", []string{"PlimsollStatementsUncounted framing"}},
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	all, file := bare(t)
	fired := map[string]bool{}
	for sentence, m := range moments() {
		t.Run(sentence, func(t *testing.T) {
			var expected []map[string]any
			for _, r := range all {
				var alerts []map[string]any
				for _, f := range m.fires {
					words := strings.Fields(f)
					if words[0] == r.Alert {
						fired[r.Alert] = true
						alerts = append(alerts, map[string]any{"exp_labels": labels(r, words[1:])})
					}
				}
				expected = append(expected, map[string]any{"eval_time": m.at, "alertname": r.Alert, "exp_alerts": alerts})
			}
			var series []map[string]string
			for _, s := range m.series {
				name, values, _ := strings.Cut(s, " ")
				series = append(series, map[string]string{"series": name, "values": values})
			}
			raw, err := yaml.Marshal(map[string]any{
				"rule_files": []string{file}, "evaluation_interval": "1m",
				"tests": []any{map[string]any{"interval": "1m", "input_series": series, "alert_rule_test": expected}},
			})
			if err != nil {
				t.Fatal(err)
			}
			test := filepath.Join(t.TempDir(), "test.yaml")
			if err := os.WriteFile(test, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := run(t, "test", "rules", test); err != nil {
				t.Error(err)
			}
		})
	}
	for _, r := range all {
		if !fired[r.Alert] {
			t.Errorf("no test makes %s fire", r.Alert)
		}
	}
}

// labels that an alert has when it fires, with these values in the order of their names below.
func labels(r rule, values []string) map[string]string {
	out := map[string]string{"severity": r.Labels["severity"]}
	names := []string{"namespace", "database", "instance"}
	switch r.Alert {
	case "PlimsollVolumeFills", "PlimsollVolumeNearlyFull":
		names = append(names, "volume")
	case "PlimsollSlotKeepsLog":
		names = append(names, "slot")
	case "PlimsollCertificateEnds":
		names = []string{"namespace", "database", "name"}
	case "PlimsollReconcileFails":
		names = []string{"kind"}
	case "PlimsollStatementsUncounted":
		names = []string{"reason"}
	case "PlimsollInstanceSilent":
		out["role"] = "unknown"
	}
	for i, v := range values {
		out[names[i]] = v
	}
	return out
}
