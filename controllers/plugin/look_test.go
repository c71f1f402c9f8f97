package plugin

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// What an agent may send that is not to be taken, and how it may end.
func TestWhyNothingIsShown(t *testing.T) {
	for sentence, row := range map[string]struct {
		of   pod
		want string
	}{
		"an agent of an earlier release":   {pod{words: "plimsoll-agent runs a database inside its pod.\ncommand terminated with exit code 2\n", code: 2}, errEarlier.Error()},
		"no probe":                         {pod{lines: []view.Line{{Probe: new(false)}}}, errNoProbe.Error()},
		"it is refused":                    {pod{lines: []view.Line{{Refused: "sixteen watch\x1b[2J already"}}}, "its agent refuses: sixteen watch?[2J already"},
		"a person who may not":             {pod{words: "Error from server (Forbidden): pods \"orders-1\" is forbidden\n", code: 1}, `kubectl exec ended with code 1: Error from server (Forbidden): pods "orders-1" is forbidden`},
		"the end of many words":            {pod{words: strings.Repeat("warning\n", 1000) + "error: no such pod\n", code: 1}, "warning; error: no such pod"},
		"no words":                         {pod{code: 3}, "kubectl exec ended with code 3: it said nothing"},
		"what is no JSON":                  {pod{raw: "hello\n"}, "its agent sends what cannot be read (invalid character 'h' looking for beginning of value): use the plugin of the operator's release"},
		"a line without an end":            {pod{raw: strings.Repeat("x", view.MaxLine)}, fmt.Sprintf("its agent sends a line of more than %d bytes: use the plugin of the operator's release", view.MaxLine)},
		"a line that is too long by one":   {pod{raw: strings.Repeat("x", view.MaxLine) + "\n"}, fmt.Sprintf("its agent sends a line of more than %d bytes: use the plugin of the operator's release", view.MaxLine)},
		"a longest line is read as a line": {pod{raw: `{"refused":"` + strings.Repeat(" ", view.MaxLine-17) + `ok"}` + "\n"}, "its agent refuses: ok"},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, command := range []string{"top", "queries"} {
				var c call
				err := c.run(t.Context(), t, pods{"orders-1": row.of}, command, "orders", "--instance", "orders-1")
				if err == nil || !strings.HasPrefix(err.Error(), "no instance of database orders can be shown: orders-1: ") || !strings.HasSuffix(err.Error(), row.want) {
					t.Errorf("%s: %v, want it to end with %q", command, err, row.want)
				}
				if len(err.Error()) > 2*mostWords || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: an error of %d bytes", command, len(err.Error()))
				}
				if c.out.String() != "" {
					t.Errorf("%s says %q", command, c.out.String())
				}
			}
		})
	}
}

func TestWhatTheInstancesAreAskedFor(t *testing.T) {
	for command, want := range map[string]string{"top": "table", "queries": "told"} {
		var c call
		_ = c.run(t.Context(), t, pods{"orders-2": {lines: []view.Line{{Probe: new(false)}}}}, command, "orders", "--instance", "orders-2", "--context", "x")
		got := c.args(t, "orders-2")
		if !strings.HasPrefix(got, "exec --namespace=shop --container=database --context=x --kubeconfig=") || !strings.HasSuffix(got, " --stdin orders-2 -- /proc/1/exe view "+want+"\n") {
			t.Errorf("kubectl %s", got)
		}
		if ended := c.endedByInput(t); !slices.Equal(ended, []string{"orders-2"}) {
			t.Errorf("of the programs in the pods ended with their input: %v", ended)
		}
	}
}

func TestWithoutKubectl(t *testing.T) {
	s := &session{Config: Config{Kubectl: filepath.Join(t.TempDir(), "kubectl")}}
	err := s.lookAt(t.Context(), nil, "shop", "orders-1", wantTable, func(line) error { return nil })
	if err == nil || !strings.HasPrefix(err.Error(), "run "+s.Kubectl+": ") {
		t.Error(err)
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT\n\t1\r\n": "SELECT 1", "a\x1b[31mb\u009b\x00c": "a?[31mb??c", "\xffä\u202e": "?ä?", "": "",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
