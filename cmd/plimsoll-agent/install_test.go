package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInstall(t *testing.T) {
	bin, etc := t.TempDir(), t.TempDir()
	self := must(os.Executable())(t)
	if err := install(self, bin, etc, 1000680000, 0); err != nil {
		t.Fatal(err)
	}
	want, got := must(digest(self))(t), must(digest(filepath.Join(bin, binaryName)))(t)
	if want != got {
		t.Errorf("the copy's digest is %x, want %x", got, want)
	}
	if mode := must(os.Stat(filepath.Join(bin, binaryName)))(t).Mode().Perm(); mode != 0o755 {
		t.Errorf("the copy's mode is %o", mode)
	}
	wantPasswd := "root:x:0:0:root:/:/sbin/nologin\ndatabase:x:1000680000:0:Plimsoll database:/run/plimsoll:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	if diff := cmp.Diff(wantPasswd, string(must(os.ReadFile(filepath.Join(etc, "passwd")))(t))); diff != "" {
		t.Errorf("passwd (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("root:x:0:\nnogroup:x:65534:\n", string(must(os.ReadFile(filepath.Join(etc, "group")))(t))); diff != "" {
		t.Errorf("group (-want +got):\n%s", diff)
	}
	// A pod whose init container runs again finds its own work.
	if err := install(self, bin, etc, 999, 999); err != nil {
		t.Fatal(err)
	}
	if text := string(must(os.ReadFile(filepath.Join(etc, "group")))(t)); !strings.Contains(text, "database:x:999:") {
		t.Errorf("group is %q", text)
	}
	if left := must(os.ReadDir(bin))(t); len(left) != 1 {
		t.Errorf("%d files in the volume, want the program alone", len(left))
	}
}

func TestInstallSaysWhatIsWrong(t *testing.T) {
	err := install(must(os.Executable())(t), filepath.Join(t.TempDir(), "missing"), t.TempDir(), 999, 999)
	if err == nil || !strings.Contains(err.Error(), "copy the agent") {
		t.Errorf("got %v", err)
	}
}

func TestDispatch(t *testing.T) {
	rows := map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"no command shows the usage":        {nil, 2, "", "plimsoll-agent install"},
		"help is no error":                  {[]string{"help"}, 0, "plimsoll-agent run", ""},
		"the version is printed":            {[]string{"version"}, 0, "dev\n", ""},
		"an unknown command is named":       {[]string{"fly"}, 2, "", `unknown command "fly"`},
		"more than a command is no command": {[]string{"run", "now"}, 2, "", `unknown command "run now"`},
		"a view has a name":                 {[]string{"view"}, 2, "", "plimsoll-agent view table"},
		"an unknown view is named":          {[]string{"view", "everything"}, 2, "", `unknown command "view everything"`},
		"a view needs an agent":             {[]string{"view", "table"}, 1, "", "plimsoll-agent view table: the agent that runs here"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := dispatch(row.args, strings.NewReader(""), &out, &errs); code != row.code {
				t.Errorf("exit code %d, want %d", code, row.code)
			}
			if !strings.Contains(out.String(), row.out) || !strings.Contains(errs.String(), row.err) {
				t.Errorf("said %q and %q", out.String(), errs.String())
			}
		})
	}
}

func TestRunOutsideAPodSaysWhatIsMissing(t *testing.T) {
	rows := map[string]struct {
		env  map[string]string
		want string
	}{
		"another engine":   {map[string]string{"PLIMSOLL_ENGINE": "oracle"}, `"oracle"; this agent knows Postgres`},
		"no API server":    {map[string]string{"PLIMSOLL_ENGINE": "postgres"}, "KUBERNETES_SERVICE_HOST"},
		"no engine at all": {nil, "PLIMSOLL_ENGINE"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			err := run(func(k string) string { return row.env[k] }, os.Stderr)
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(row.want)) {
				t.Errorf("got %v, want it to say %s", err, row.want)
			}
		})
	}
}
