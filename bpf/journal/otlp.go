package journal

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// tryMost bounds one request, triesMost how often a batch is sent, and the waits between double from waitFirst to waitMost, which bounds those that
	// a receiver asks for, too.
	tryMost, triesMost  = 10 * time.Second, 5
	waitFirst, waitMost = time.Second, 10 * time.Second
	// mostAnswer bounds what is read of an answer.
	mostAnswer = 64 << 10
	logsPath   = "/v1/logs"
)

// OTLP sends entries as logs of OpenTelemetry's protocol, by HTTP.
type OTLP struct {
	url     string
	shown   string // the same without a password
	headers http.Header
	version string
	client  *http.Client
	wait    func(context.Context, time.Duration) error
}

// OTLPOptions say where a receiver is.
type OTLPOptions struct {
	// Endpoint of the receiver, as http://collector:4318; without a path, logs go to /v1/logs.
	Endpoint string
	// Headers of each request, as OTEL_EXPORTER_OTLP_HEADERS has them: name=value, with commas between, values as in a URL.
	Headers string
	// TLS of https; nil for the system's authorities.
	TLS *tls.Config
	// Version of this program.
	Version string
}

// NewOTLP says what of the options cannot work.
func NewOTLP(o OTLPOptions) (*OTLP, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no endpoint for OTLP: give a URL of http or https, as http://collector.monitoring:4318", o.Endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = logsPath
	}
	headers, err := parseHeaders(o.Headers)
	if err != nil {
		return nil, err
	}
	const connections = 2
	return &OTLP{
		url: u.String(), shown: u.Redacted(), headers: headers, version: o.Version, wait: wait,
		client: &http.Client{
			Timeout: tryMost,
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS, TLSHandshakeTimeout: tryMost, ResponseHeaderTimeout: tryMost,
				MaxIdleConns: connections, MaxConnsPerHost: connections, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
			},
			// Texts go where they were meant to go, and nowhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func parseHeaders(list string) (http.Header, error) {
	headers := http.Header{}
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || name == "" || err != nil {
			return nil, errors.New("the headers for OTLP are not name=value with commas between them") // they may hold a secret
		}
		headers.Set(name, value)
	}
	return headers, nil
}

// Name implements Sink.
func (o *OTLP) Name() string { return "otlp" }

// Send implements Sink.
func (o *OTLP) Send(ctx context.Context, entries []Entry) error {
	body, err := o.body(entries)
	if err != nil {
		return err
	}
	pause := waitFirst
	for try := 1; ; try++ {
		asked, again, err := o.try(ctx, body, len(entries))
		if err == nil || !again || try == triesMost {
			return err
		}
		// Not all probes at the same moment.
		next := max(pause/2+rand.N(pause/2), min(asked, waitMost))
		if stopped := o.wait(ctx, next); stopped != nil {
			return errors.Join(err, stopped)
		}
		pause = min(2*pause, waitMost)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// try sends once. It says how long the receiver asks to be left alone, and whether to try again.
func (o *OTLP) try(ctx context.Context, body []byte, entries int) (asked time.Duration, again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return 0, false, fmt.Errorf("ask %s: %w", o.shown, err)
	}
	for name, values := range o.headers {
		request.Header[name] = values
	}
	request.Header.Set("User-Agent", "plimsoll-probe/"+o.version)
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")
	answer, err := o.client.Do(request)
	if err != nil {
		return 0, ctx.Err() == nil, fmt.Errorf("send statements: %w", err)
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, mostAnswer)) // what is cut says nothing
	switch status := answer.StatusCode; {
	case status >= 200 && status <= 299:
		return 0, false, rejected(answer.Header.Get("Content-Type"), said)
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		asked = time.Duration(min(max(seconds, 0), int(waitMost/time.Second))) * time.Second
		return asked, true, fmt.Errorf("send statements to %s: it answered %s", o.shown, answer.Status)
	default:
		return 0, false, &RefusedError{Entries: entries, Why: fmt.Errorf("send statements to %s: it answered %s", o.shown, answer.Status)}
	}
}

// rejected reads how many entries a receiver has not taken although it took the request.
func rejected(kind string, said []byte) error {
	var answer collector.ExportLogsServiceResponse
	readable := kind == "application/x-protobuf" && proto.Unmarshal(said, &answer) == nil
	part := answer.GetPartialSuccess()
	if !readable || part.GetRejectedLogRecords() <= 0 {
		return nil // it has them
	}
	return &RefusedError{
		Entries: int(min(part.GetRejectedLogRecords(), math.MaxInt32)),
		Why:     fmt.Errorf("the receiver of statements left some out: %s", part.GetErrorMessage()),
	}
}

// body is the request for some entries.
func (o *OTLP) body(entries []Entry) ([]byte, error) {
	raw, err := proto.Marshal(o.request(entries, time.Now()))
	if err != nil {
		return nil, fmt.Errorf("write statements for OTLP: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(raw)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("compress statements for OTLP: %w", err)
	}
	return b.Bytes(), nil
}

func (o *OTLP) request(entries []Entry, now time.Time) *collector.ExportLogsServiceRequest {
	all := &collector.ExportLogsServiceRequest{}
	of := map[Origin]*logs.ScopeLogs{}
	for _, e := range entries {
		scope := of[e.Origin]
		if scope == nil {
			scope = &logs.ScopeLogs{Scope: &common.InstrumentationScope{Name: "plimsoll-probe", Version: o.version}, SchemaUrl: Schema}
			of[e.Origin] = scope
			all.ResourceLogs = append(all.ResourceLogs, &logs.ResourceLogs{
				Resource: &resource.Resource{Attributes: attributes(e.Origin.fields())}, ScopeLogs: []*logs.ScopeLogs{scope}, SchemaUrl: Schema,
			})
		}
		name, said := e.event()
		number, severity := e.severity()
		scope.LogRecords = append(scope.LogRecords, &logs.LogRecord{
			TimeUnixNano: uint64(e.End.UnixNano()), ObservedTimeUnixNano: uint64(now.UnixNano()), EventName: name,
			SeverityNumber: logs.SeverityNumber(number), SeverityText: severity, Body: valueOf(said), Attributes: attributes(e.fields()),
		})
	}
	return all
}

func attributes(fields []field) []*common.KeyValue {
	var all []*common.KeyValue
	for _, f := range fields {
		all = append(all, &common.KeyValue{Key: f.name, Value: valueOf(f.value)})
	}
	return all
}

func valueOf(v any) *common.AnyValue {
	switch v := v.(type) {
	case string:
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v}}
	case int64:
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: v}}
	case float64:
		return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: v}}
	case bool:
		return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v}}
	}
	return nil
}
