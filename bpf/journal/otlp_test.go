package journal

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
)

// receiver of logs, which answers as it is told to.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	took    []*collector.ExportLogsServiceRequest
	headers []http.Header
	paths   []string
}

// newReceiver gives each request the next answer, and the last one again and again.
func newReceiver(t *testing.T, answers ...http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		z, err := gzip.NewReader(q.Body)
		if err != nil {
			t.Errorf("it is not compressed: %v", err)
			return
		}
		raw, err := io.ReadAll(z)
		if err != nil {
			t.Error(err)
		}
		took := &collector.ExportLogsServiceRequest{}
		if err := proto.Unmarshal(raw, took); err != nil {
			t.Errorf("it is no request for logs: %v", err)
		}
		r.mu.Lock()
		n := min(len(r.took), len(answers)-1)
		r.took, r.headers, r.paths = append(r.took, took), append(r.headers, q.Header), append(r.paths, q.URL.Path)
		r.mu.Unlock()
		answers[n](w, q)
	}))
	t.Cleanup(r.Close)
	return r
}

func status(code int, more ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(more); i += 2 {
			w.Header().Set(more[i], more[i+1])
		}
		w.WriteHeader(code)
	}
}

func takes(rejected int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		raw, _ := proto.Marshal(&collector.ExportLogsServiceResponse{PartialSuccess: &collector.ExportLogsPartialSuccess{RejectedLogRecords: rejected, ErrorMessage: "too old"}})
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(raw)
	}
}

// sender sends to a receiver, and waits in no time.
func sender(t *testing.T, o OTLPOptions) (*OTLP, *[]time.Duration) {
	t.Helper()
	s, err := NewOTLP(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.CloseIdleConnections)
	var waits []time.Duration
	s.wait = func(ctx context.Context, d time.Duration) error {
		waits = append(waits, d)
		return ctx.Err()
	}
	return s, &waits
}

// flat is an entry as a receiver has it: names to values.
func flat(all []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range all {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *common.AnyValue_DoubleValue:
			out[kv.GetKey()] = fmt.Sprint(v.DoubleValue)
		case *common.AnyValue_BoolValue:
			out[kv.GetKey()] = strconv.FormatBool(v.BoolValue)
		}
	}
	return out
}

func TestAReceiverGetsEveryFieldOfEveryEntry(t *testing.T) {
	r := newReceiver(t, takes(0))
	s, _ := sender(t, OTLPOptions{Endpoint: r.URL, Headers: "authorization=Bearer%20abc, x-scope = shop", Version: "v9"})
	other := slow()
	other.Origin.Name = "orders-2"
	entries := []Entry{slow(), failed(), other}
	if err := s.Send(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	if got := r.paths[0] + " " + r.headers[0].Get("Authorization") + " " + r.headers[0].Get("X-Scope"); got != "/v1/logs Bearer abc shop" {
		t.Errorf("asked for %s", got)
	}
	all := r.took[0].GetResourceLogs()
	if len(all) != 2 || len(all[0].GetScopeLogs()[0].GetLogRecords()) != 2 || len(all[1].GetScopeLogs()[0].GetLogRecords()) != 1 {
		t.Fatalf("not two of one instance and one of another: %v", all)
	}
	n := 0
	for _, of := range all {
		for _, record := range of.GetScopeLogs()[0].GetLogRecords() {
			e := entries[n]
			n++
			want := map[string]string{}
			for _, f := range append(e.Origin.fields(), e.fields()...) {
				want[f.name] = fmt.Sprint(f.value)
			}
			got := flat(of.GetResource().GetAttributes())
			for name, value := range flat(record.GetAttributes()) {
				got[name] = value
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			name, said := e.event()
			if record.GetEventName() != name || record.GetBody().GetStringValue() != said || record.GetTimeUnixNano() != uint64(e.End.UnixNano()) {
				t.Errorf("%v", record)
			}
			if want := map[bool]logs.SeverityNumber{true: logs.SeverityNumber_SEVERITY_NUMBER_WARN, false: logs.SeverityNumber_SEVERITY_NUMBER_ERROR}[e.State == 0]; record.GetSeverityNumber() != want {
				t.Errorf("its severity is %v, want %v", record.GetSeverityNumber(), want)
			}
		}
		if of.GetSchemaUrl() != Schema || of.GetScopeLogs()[0].GetScope().GetName() != "plimsoll-probe" || of.GetScopeLogs()[0].GetScope().GetVersion() != "v9" {
			t.Errorf("it is of %v", of.GetScopeLogs()[0].GetScope())
		}
	}
}

func TestWhatIsSentAgainAndWhatIsNot(t *testing.T) {
	entries := []Entry{slow(), failed()}
	for sentence, row := range map[string]struct {
		answers []http.HandlerFunc
		tries   int
		refused int // -1 if it is told by another error
		err     string
		asked   time.Duration
	}{
		"it is taken":                        {answers: []http.HandlerFunc{takes(0)}, tries: 1},
		"it is taken without a word":         {answers: []http.HandlerFunc{status(204)}, tries: 1},
		"the receiver comes back":            {answers: []http.HandlerFunc{status(503), status(429), takes(0)}, tries: 3},
		"the receiver asks for a pause":      {answers: []http.HandlerFunc{status(503, "Retry-After", "7"), takes(0)}, tries: 2, asked: 7 * time.Second},
		"the receiver asks for a long pause": {answers: []http.HandlerFunc{status(503, "Retry-After", "86400"), takes(0)}, tries: 2, asked: waitMost},
		"the receiver asks for nonsense":     {answers: []http.HandlerFunc{status(503, "Retry-After", "-9999999999999999999"), takes(0)}, tries: 2},
		"the receiver is never ready":        {answers: []http.HandlerFunc{status(502)}, tries: triesMost, refused: -1, err: "it answered 502 Bad Gateway"},
		"it is not wanted":                   {answers: []http.HandlerFunc{status(400)}, tries: 1, refused: 2, err: "it answered 400 Bad Request"},
		"one of them is not wanted":          {answers: []http.HandlerFunc{takes(1)}, tries: 1, refused: 1, err: "the receiver of statements left some out: too old"},
		"the receiver sends us to elsewhere": {answers: []http.HandlerFunc{status(307, "Location", "/elsewhere"), takes(0)}, tries: 1, refused: 2, err: "it answered 307 Temporary Redirect"},
		"the receiver's answer is no message": {answers: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte("ok"))
		}}, tries: 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newReceiver(t, row.answers...)
			s, waits := sender(t, OTLPOptions{Endpoint: r.URL})
			err := s.Send(t.Context(), entries)
			if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.HasSuffix(err.Error(), row.err)) {
				t.Errorf("%v, want %q", err, row.err)
			}
			var refused *RefusedError
			if errors.As(err, &refused) != (row.refused > 0) || row.refused > 0 && refused.Entries != row.refused {
				t.Errorf("%v are refused, want %d", refused, row.refused)
			}
			if len(r.took) != row.tries || len(*waits) != row.tries-1 {
				t.Errorf("sent %d times with %v between, want %d", len(r.took), *waits, row.tries)
			}
			for i, d := range *waits {
				if d < waitFirst/2 || d > waitMost || i == 0 && row.asked > 0 && d != row.asked {
					t.Errorf("waited %v, want %v", d, row.asked)
				}
			}
		})
	}
}

func TestAReceiverThatIsNotThereIsTriedABoundedNumberOfTimes(t *testing.T) {
	r := newReceiver(t, takes(0))
	r.Close()
	s, waits := sender(t, OTLPOptions{Endpoint: r.URL})
	if err := s.Send(t.Context(), []Entry{slow()}); err == nil || len(*waits) != triesMost-1 {
		t.Errorf("%v after %d tries", err, len(*waits)+1)
	}
}

func TestAPasswordOfTheEndpointIsNotTold(t *testing.T) {
	r := newReceiver(t, status(503))
	s, _ := sender(t, OTLPOptions{Endpoint: strings.Replace(r.URL, "://", "://ada:hunter2@", 1)})
	if err := s.Send(t.Context(), []Entry{slow()}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %v", err)
	}
	if got := r.headers[0].Get("Authorization"); !strings.HasPrefix(got, "Basic ") {
		t.Errorf("it is not sent: %q", got)
	}
}

func TestEndpointsThatCannotWork(t *testing.T) {
	for want, o := range map[string]OTLPOptions{
		`"collector:4318" is no endpoint`:   {Endpoint: "collector:4318"},
		`"ftp://collector" is no endpoint`:  {Endpoint: "ftp://collector"},
		`"http://" is no endpoint`:          {Endpoint: "http://"},
		"the headers for OTLP are not name": {Endpoint: "http://collector:4318", Headers: "secret"},
	} {
		if _, err := NewOTLP(o); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for endpoint, want := range map[string]string{
		"http://c:4318": "http://c:4318/v1/logs", "https://c/": "https://c/v1/logs", "https://c/otlp/v1/logs": "https://c/otlp/v1/logs",
	} {
		if o, err := NewOTLP(OTLPOptions{Endpoint: endpoint}); err != nil || o.url != want {
			t.Errorf("%s leads to %v, %v", endpoint, o, err)
		}
	}
}
