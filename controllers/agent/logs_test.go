package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestPlainOutputBecomesJSON(t *testing.T) {
	rows := map[string]struct {
		in   string
		want []string
	}{
		"a line":                        {"hello\n", []string{"hello"}},
		"a last line without an end":    {"a\nb", []string{"a", "b"}},
		"quotes and control characters": {"say \"hi\"\x01\n", []string{"say \"hi\"\x01"}},
		"bytes that are no text":        {"a\xff\xfeb\n", []string{"a\uFFFDb"}},
		"a line that is far too long":   {strings.Repeat("x", 3*maxEntry) + "\nnext\n", []string{strings.Repeat("x", maxEntry), "next"}},
		"nothing":                       {"", nil},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			l := &logs{out: &out, name: "server"}
			if err := plain(t.Context(), strings.NewReader(row.in), l.emit); err != nil {
				t.Fatal(err)
			}
			var got []string
			d := json.NewDecoder(&out)
			for {
				var line struct{ Msg, Logger, Time string }
				err := d.Decode(&line)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if line.Logger != "server" || line.Time == "" {
					t.Errorf("line is %+v", line)
				}
				got = append(got, line.Msg)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if cut := l.cut.Load(); (cut == 1) != strings.Contains(name, "too long") {
				t.Errorf("%d lines were counted as cut", cut)
			}
		})
	}
}

func TestStateSurvives(t *testing.T) {
	cfg := Config{Namespace: "shop", Database: "orders", UID: testUID, Instance: "orders-1", StateDir: t.TempDir()}
	if _, _, found, err := loadAim(cfg); found || err != nil {
		t.Fatalf("an empty volume holds an aim: %v %v", found, err)
	}
	want := aimFor(func(a *engine.Aim) { a.Files = map[string]string{"x": "y"} })
	if err := save(cfg.aimPath(), want); err != nil {
		t.Fatal(err)
	}
	got, _, found, err := loadAim(cfg)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cfg.UID = "another"
	if _, _, found, err := loadAim(cfg); found || err != nil {
		t.Errorf("the aim of another Database was taken: %v %v", found, err)
	}
	if err := replace(cfg.aimPath(), []byte("half a file")); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := loadAim(cfg); err == nil {
		t.Error("a broken file was taken for an aim")
	}
	if names := must(filepath.Glob(filepath.Join(cfg.StateDir, "*")))(t); len(names) != 1 {
		t.Errorf("files %v are left", names)
	}
}
