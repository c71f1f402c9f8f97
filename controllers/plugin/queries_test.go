package plugin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

const (
	slowRaw = `{"time":"2026-11-29T12:00:01.0015Z","severity":"WARN","event":"plimsoll.statement.slow","service.instance.id":"orders-1","k8s.node.name":"n1","db.namespace":"books","user.name":"ada","db.query.text":"SELECT a\n FROM t WHERE b = ?","client.address":"10.0.0.7","plimsoll.role":"primary","plimsoll.statement.duration":1.5,"plimsoll.statement.rows":3,"x":12345678901234567890}`
	// A command that was not seen to begin, by a client of a socket of the file system.
	failedRaw = `{"time":"2026-11-29T12:00:02Z","event":"plimsoll.statement.failed","db.namespace":"books","user.name":"a\u001b[2Jda","db.query.text":"INSERT INTO t VALUES (?","plimsoll.query.cut":true,"db.response.status_code":"23505","plimsoll.statement.rows":0}`
)

func told() pods {
	return pods{
		"orders-1": {raw: `{"probe":true}` + "\n" + `{"told":[` + slowRaw + `,` + failedRaw + `]}` + "\n" + `{"lost":7,"told":[` + slowRaw + `]}` + "\n" + `{"told":[{"time":1}]}` + "\n"},
		"orders-2": {raw: `{"probe":false}` + "\n"},
		"orders-3": {words: "plimsoll-agent runs a database inside its pod.\n", code: 2},
	}
}

func TestQueries(t *testing.T) {
	const words = "orders-1: lost 7 messages with statements, because they were not read in time\n" +
		"orders-1: a statement cannot be read (Time.UnmarshalJSON: input is not a JSON string): use the plugin of the operator's release\n" +
		"orders-2: no probe tells of it: see kubectl plimsoll probe status\n"
	slow := "12:00:01.001  orders-1  ada@books  10.0.0.7  1.50s  -  3  SELECT a FROM t WHERE b = ?\n"
	failed := "12:00:02.000  orders-1  a?[2Jda@books  -  -  23505  0  INSERT INTO t VALUES (? …\n"
	for args, want := range map[string]string{
		"":                    slow + failed + slow,
		"--slow":              slow + slow,
		"--failed":            failed,
		"--slow --failed":     slow + failed + slow,
		"--min 1500ms":        slow + failed + slow,
		"--min 1501ms":        failed,
		"--min 2s --slow":     "",
		"--failed --min 2s":   failed,
		"-o json":             slowRaw + "\n" + failedRaw + "\n" + slowRaw + "\n",
		"-o json --failed":    failedRaw + "\n",
		"--instance orders-1": slow + failed + slow,
	} {
		t.Run(args, func(t *testing.T) {
			var c call
			ended := c.begin(t, told(), append([]string{"queries", "orders"}, strings.Fields(args)...)...)
			all := 4
			if strings.Contains(args, "--instance") {
				all = 2
			}
			if err := c.interrupt(t, ended, func() bool { return strings.Count(c.err.String(), "\n") == all }); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, c.out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for line := range strings.Lines(c.err.String()) {
				if !strings.Contains(words+"orders-3: "+errEarlier.Error()+"\n", line) {
					t.Errorf("on standard error: %s", line)
				}
			}
			if ended := c.endedByInput(t); !slices.Contains(ended, "orders-1") {
				t.Errorf("of the programs in the pods ended with their input: %v", ended)
			}
		})
	}
}

func TestQueriesOfNoInstance(t *testing.T) {
	p := told()
	p["orders-1"] = pod{raw: `{"probe":false}` + "\n"}
	var c call
	err := c.run(t.Context(), t, p, "queries", "orders")
	want := "no instance of database orders can be shown: orders-1: " + errNoProbe.Error() + "; orders-2: " + errNoProbe.Error() + "; orders-3: " + errEarlier.Error()
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestQueriesOfBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"--min -1s":           "--min -1s: use a time that is not negative, as 100ms",
		"-o yaml":             `--output "yaml": use json, or leave it out`,
		"--instance orders-9": `--instance orders-9: database orders has no instance "orders-9": it has [orders-1 orders-2 orders-3]`,
	} {
		var c call
		if err := c.run(t.Context(), t, nil, append([]string{"queries", "orders"}, strings.Fields(args)...)...); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestTimesOfStatementsAreThePersons(t *testing.T) {
	s := &session{Config: Config{Now: func() time.Time { return noon.In(time.FixedZone("", 2*60*60)) }}}
	var st view.Statement
	if err := json.Unmarshal([]byte(slowRaw), &st); err != nil {
		t.Fatal(err)
	}
	if got := s.words("orders-1", st); !strings.HasPrefix(got, "14:00:01.001  ") {
		t.Error(got)
	}
}
