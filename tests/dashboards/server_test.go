package dashboards

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// prometheus is Debian's, which the suite installs.
const prometheus = "/usr/bin/prometheus"

// Bounds of waits, for machines that are busy.
const (
	beginsWithin  = time.Minute
	answersWithin = 10 * time.Second
)

// server is a Prometheus.
type server struct {
	at     string
	client http.Client
}

// start a Prometheus with these features that scrapes what is sold at an address, until the test ends.
func start(t *testing.T, scraped string, features ...string) *server {
	t.Helper()
	if _, err := os.Stat(prometheus); err != nil {
		t.Fatalf("these tests need Debian's package prometheus (`make packages` installs it, and so does apt-get install prometheus): %v", err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(config, []byte(configFor(scraped)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{at: freeAddress(t), client: http.Client{Timeout: answersWithin}}
	args := []string{
		"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + s.at, "--log.level=warn",
	}
	for _, f := range features {
		args = append(args, "--enable-feature="+f)
	}
	var log bytes.Buffer
	// The test's context ends before what is cleaned up: it is asked to end, and killed if it does not.
	cmd := exec.CommandContext(t.Context(), prometheus, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &log, &log, dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = answersWithin
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		// The kernel sends Pdeathsig when the thread that started the child ends, not the process: stay on it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it says how it ended in its log
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		<-ended
		if t.Failed() {
			t.Logf("the log of Prometheus:\n%s", &log)
		}
	})
	for deadline := time.Now().Add(beginsWithin); !s.ready(); time.Sleep(100 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatalf("Prometheus has ended:\n%s", &log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("Prometheus is not ready after %v", beginsWithin)
		}
	}
	return s
}

// configFor scrapes a manager and a probe as config/prometheus has them scraped: their series keep labels of their own, and those that have none
// of these names get those of the pod.
func configFor(scraped string) string {
	job := func(name, namespace, pod string) string {
		return fmt.Sprintf("- {job_name: plimsoll-%[1]s, honor_labels: true, metrics_path: /%[1]s, static_configs: [{targets: [%[2]q], labels: {namespace: %[3]s, pod: %[4]s, endpoint: metrics}}]}\n",
			name, scraped, namespace, pod)
	}
	return "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n" +
		job("manager", "plimsoll-system", "plimsoll-manager-6d5f7c9b8-x2x4x") + job("probe", "plimsoll-probe", "plimsoll-probe-7kq2m")
}

// freeAddress of the loopback interface, which nobody listened at a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *server) ready() bool {
	answer, err := s.client.Get("http://" + s.at + "/-/ready")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// series of an answer, by their labels, with what they hold.
type series struct {
	Metric     map[string]string `json:"metric"`
	Value      []any             `json:"value"`
	Values     [][]any           `json:"values"`
	Histogram  []any             `json:"histogram"`
	Histograms []any             `json:"histograms"`
}

// says whether a series holds anything that a panel could draw.
func (s series) says() bool {
	if len(s.Histogram)+len(s.Histograms) > 0 {
		return true
	}
	for _, v := range append(slices.Clone(s.Values), s.Value) {
		if len(v) == 2 && v[1] != "NaN" {
			return true
		}
	}
	return false
}

// ask an expression at this moment, or over the last half minute.
func (s *server) ask(expr string, instant bool) ([]series, error) {
	now := time.Now()
	at := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	path, values := "/api/v1/query_range", url.Values{"query": {expr}, "start": {at(now.Add(-30 * time.Second))}, "end": {at(now)}, "step": {"1"}}
	if instant {
		path, values = "/api/v1/query", url.Values{"query": {expr}, "time": {at(now)}}
	}
	var data struct {
		Result []series `json:"result"`
	}
	err := s.get(path, values, &data)
	return slices.DeleteFunc(data.Result, func(one series) bool { return !one.says() }), err
}

// valuesOf a label of some series, as Grafana asks for those of a variable.
func (s *server) valuesOf(label, of string) ([]string, error) {
	var values []string
	err := s.get("/api/v1/label/"+label+"/values", url.Values{"match[]": {of}}, &values)
	return values, err
}

// errNotUnderstood is an answer that stays the same however often it is asked for.
var errNotUnderstood = errors.New("prometheus does not understand")

func (s *server) get(path string, values url.Values, data any) error {
	answer, err := s.client.Get("http://" + s.at + path + "?" + values.Encode())
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("read the answer of Prometheus: %w", err)
	}
	var told struct {
		Status string          `json:"status"`
		Type   string          `json:"errorType"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &told); err != nil {
		return fmt.Errorf("read the answer of Prometheus, %s: %w", answer.Status, err)
	}
	if told.Type == "bad_data" {
		return fmt.Errorf("%w: %s", errNotUnderstood, told.Error)
	}
	if told.Status != "success" {
		return fmt.Errorf("prometheus answers: %s", told.Error)
	}
	return json.Unmarshal(told.Data, data)
}
