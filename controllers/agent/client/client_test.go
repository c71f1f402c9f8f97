package client_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testUID = "11111111-2222-3333-4444-555555555555"
	one     = "orders-1"
)

// stage is an agent's side of a connection, played by a handler.
type stage struct {
	ca     *authority.Authority
	server *httptest.Server
	client *client.Client
	port   int
	dials  atomic.Int32
}

func newStage(t *testing.T, play http.HandlerFunc) *stage {
	t.Helper()
	s := &stage{ca: authority.New(t)}
	s.server = httptest.NewUnstartedServer(play)
	s.server.TLS = &tls.Config{
		Certificates: []tls.Certificate{s.ca.Pair(t, testUID, client.MemberPrefix+one, authority.Names(one))}, ClientCAs: s.ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
	}
	s.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.dials.Add(1)
		}
	}
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	s.port = s.server.Listener.Addr().(*net.TCPAddr).Port
	s.client = s.as(t, client.ManagerName)
	return s
}

// as returns a client that calls itself so.
func (s *stage) as(t *testing.T, name string) *client.Client {
	t.Helper()
	c := client.New(testUID, must(client.Fixed(s.ca.Leaf(t, testUID, name)))(t), client.WithPort(s.port))
	t.Cleanup(c.Close)
	return c
}

func here() engine.Peer { return engine.Peer{Name: one, Address: "127.0.0.1"} }

func anAim() engine.Aim { return engine.Aim{UID: testUID, Member: one, Epoch: 3} }

func TestAnswersOfAnAgent(t *testing.T) {
	for name, row := range map[string]struct {
		code int
		body string
		want error // nil: none of those that a caller acts on
		text string
	}{
		"an aim of an older epoch is stale":         {http.StatusConflict, "the agent has seen epoch 9", client.ErrStale, "agent of orders-1: the agent has seen a later epoch: the agent has seen epoch 9"},
		"an aim for somebody else is misdirected":   {http.StatusMisdirectedRequest, "I am orders-2", client.ErrMisdirected, "agent of orders-1: the agent serves another member: I am orders-2"},
		"a caller without rights is refused":        {http.StatusForbidden, "you may not\n", client.ErrRefused, "agent of orders-1: the agent refused the request: you may not"},
		"a path of another version is refused":      {http.StatusNotFound, "", client.ErrRefused, "agent of orders-1: the agent refused the request: Not Found"},
		"an agent's own failure is none of these":   {http.StatusInternalServerError, "disk full", nil, "agent of orders-1: 500: disk full"},
		"a redirect is not followed":                {http.StatusFound, "", client.ErrRefused, "agent of orders-1: the agent refused the request: Found"},
		"the text of a refusal is bounded at 4 KiB": {http.StatusBadRequest, strings.Repeat("x", 1<<20), client.ErrRefused, "agent of orders-1: the agent refused the request: " + strings.Repeat("x", 4<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(row.code)
				_, _ = io.WriteString(w, row.body)
			})
			err := s.client.SetAim(t.Context(), here().Address, anAim())
			if err == nil || err.Error() != row.text {
				t.Errorf("error %.200q, want %.200q", fmt.Sprint(err), row.text)
			}
			for _, known := range []error{client.ErrStale, client.ErrMisdirected, client.ErrRefused} {
				if errors.Is(err, known) != errors.Is(row.want, known) {
					t.Errorf("%v is %v: %v, want only %v", err, known, errors.Is(err, known), row.want)
				}
			}
		})
	}
}

func TestWhatIsSentArrives(t *testing.T) {
	type call struct{ Method, Path, Type string }
	var got call
	var aim engine.Aim
	s := newStage(t, func(w http.ResponseWriter, r *http.Request) {
		got = call{r.Method, r.URL.Path, r.Header.Get("Content-Type")}
		if err := json.NewDecoder(r.Body).Decode(&aim); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	want := anAim()
	if err := s.client.SetAim(t.Context(), here().Address, want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(call{http.MethodPut, "/v1/aim", "application/json"}, got) + cmp.Diff(want, aim); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestABadAnswerIsBounded(t *testing.T) {
	for name, row := range map[string]struct {
		body func(w io.Writer)
		want string
	}{
		"a report without an end": {func(w io.Writer) {
			_, _ = io.WriteString(w, `{"problem":"`)
			block := []byte(strings.Repeat("x", 64<<10))
			for range 64 { // 4 MiB, where a report may have 1 MiB
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, "unexpected end of JSON input"},
		"no report":    {func(w io.Writer) { _, _ = io.WriteString(w, "<html>") }, "invalid character"},
		"empty answer": {func(io.Writer) {}, "unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, func(w http.ResponseWriter, _ *http.Request) { row.body(w) })
			_, err := s.client.Report(t.Context(), here())
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "/v1/report of orders-1") {
				t.Errorf("error %v, want %q and whose report it is", err, row.want)
			}
			told := 0
			if err := s.client.WatchReports(t.Context(), here(), func(engine.Report) { told++ }); err == nil || told != 0 {
				t.Errorf("a watch told %d reports and ended with %v", told, err)
			}
		})
	}
}

func TestASilentAgentIsGivenUp(t *testing.T) {
	t.Parallel()
	t.Run("it takes no connection", func(t *testing.T) {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t) // the kernel accepts, nobody shakes hands
		t.Cleanup(func() { _ = l.Close() })
		c := client.New(testUID, must(client.Fixed(authority.New(t).Leaf(t, testUID, client.ManagerName)))(t), client.WithPort(l.Addr().(*net.TCPAddr).Port))
		t.Cleanup(c.Close)
		gaveUp(t, 2*time.Second, func() error { _, err := c.Report(t.Context(), here()); return err })
	})
	t.Run("it does not answer", func(t *testing.T) {
		s := newStage(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		gaveUp(t, 5*time.Second, func() error { _, err := s.client.Report(t.Context(), here()); return err })
	})
	t.Run("the caller has less time", func(t *testing.T) {
		s := newStage(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		gaveUp(t, 100*time.Millisecond, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := s.client.Report(ctx, here())
			return err
		})
	})
	t.Run("nobody listens", func(t *testing.T) {
		s := newStage(t, func(http.ResponseWriter, *http.Request) {})
		s.server.Close()
		_, err := s.client.Report(t.Context(), here())
		if err == nil || !strings.Contains(err.Error(), "reach the agent of orders-1") {
			t.Errorf("error %v", err)
		}
	})
}

// gaveUp says that the call ends with an error after about the time.
func gaveUp(t *testing.T, after time.Duration, call func() error) {
	t.Helper()
	begin := time.Now()
	err := call()
	if took := time.Since(begin); err == nil || took < after-after/10 || took > after+3*time.Second {
		t.Errorf("it ended after %s with %v, want an error after %s", took.Round(time.Millisecond), err, after)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	line := func(w http.ResponseWriter, epoch int64) {
		_ = json.NewEncoder(w).Encode(engine.Report{Instance: one, Epoch: epoch})
		_ = http.NewResponseController(w).Flush()
	}
	t.Run("it tells each report, and the caller dials again after a break", func(t *testing.T) {
		var calls atomic.Int64
		s := newStage(t, func(w http.ResponseWriter, r *http.Request) {
			n := calls.Add(1)
			if r.URL.RawQuery != "watch=true" {
				t.Errorf("query %q", r.URL.RawQuery)
			}
			line(w, 10*n)
			_, _ = io.WriteString(w, "\n")
			line(w, 10*n+1)
			if n == 2 {
				panic(http.ErrAbortHandler) // the connection breaks
			}
		})
		var epochs []int64
		for range 3 {
			err := s.client.WatchReports(t.Context(), here(), func(r engine.Report) { epochs = append(epochs, r.Epoch) })
			if err == nil || !strings.Contains(err.Error(), "watch orders-1") || !(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				t.Errorf("a watch that broke ended with %v", err)
			}
		}
		if diff := cmp.Diff([]int64{10, 11, 20, 21, 30, 31}, epochs); diff != "" {
			t.Errorf("epochs told (-want +got):\n%s", diff)
		}
	})
	t.Run("a refusal is told as such", func(t *testing.T) {
		s := newStage(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		if err := s.client.WatchReports(t.Context(), here(), func(engine.Report) {}); !errors.Is(err, client.ErrRefused) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("it ends with its context", func(t *testing.T) {
		s := newStage(t, func(w http.ResponseWriter, r *http.Request) { line(w, 1); <-r.Context().Done() })
		ctx, cancel := context.WithCancel(t.Context())
		err := s.client.WatchReports(ctx, here(), func(engine.Report) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("an agent that falls silent is given up", func(t *testing.T) {
		s := newStage(t, func(w http.ResponseWriter, r *http.Request) { line(w, 1); <-r.Context().Done() })
		begin := time.Now()
		err := s.client.WatchReports(t.Context(), here(), func(engine.Report) {})
		if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), "orders-1 said nothing for 12s") || took < 11*time.Second || took > 15*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
	t.Run("a line without an end", func(t *testing.T) {
		s := newStage(t, func(w http.ResponseWriter, _ *http.Request) {
			block := []byte(strings.Repeat("x", 64<<10))
			for range 64 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		})
		if err := s.client.WatchReports(t.Context(), here(), func(engine.Report) {}); err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("error %v, want one about the length", err)
		}
	})
}

func TestWhomAClientBelieves(t *testing.T) {
	for name, row := range map[string]struct {
		server func(t *testing.T, ca *authority.Authority) tls.Certificate
		want   string
	}{
		"a member of another name": {func(t *testing.T, ca *authority.Authority) tls.Certificate {
			return ca.Pair(t, testUID, client.MemberPrefix+"orders-2", authority.Names(one))
		}, "not orders-1's"},
		"the manager in a member's place": {func(t *testing.T, ca *authority.Authority) tls.Certificate {
			return ca.Pair(t, testUID, client.ManagerName, authority.Names(one))
		}, "not orders-1's"},
		"a member of another Database": {func(t *testing.T, ca *authority.Authority) tls.Certificate {
			return ca.Pair(t, "another", client.MemberPrefix+one, authority.Names(one))
		}, "not for " + testUID},
		"a certificate without the name": {func(t *testing.T, ca *authority.Authority) tls.Certificate {
			return ca.Pair(t, testUID, client.MemberPrefix+one, authority.Names("orders-2"))
		}, "orders-1"},
		"another authority": {func(t *testing.T, _ *authority.Authority) tls.Certificate {
			return authority.New(t).Pair(t, testUID, client.MemberPrefix+one, authority.Names(one))
		}, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was sent all the same") })
			s.server.TLS.Certificates = []tls.Certificate{row.server(t, s.ca)}
			_, err := s.client.Report(t.Context(), here())
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

// TestAMemberIsFoundAmongItsAddresses, of which some are of its past: one is silent, one refuses, and somebody else answers at another.
func TestAMemberIsFoundAmongItsAddresses(t *testing.T) {
	s := newStage(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	at := func(address string) net.Listener {
		return must(net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(s.port))))(t)
	}
	silent := at("127.0.0.2") // connects, and says nothing
	defer func() { _ = silent.Close() }()
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another member was asked") }))
	other.Listener = at("127.0.0.3")
	other.TLS = &tls.Config{Certificates: []tls.Certificate{s.ca.Pair(t, testUID, client.MemberPrefix+"orders-2", authority.Names("orders-2"))}, MinVersion: tls.VersionTLS13}
	other.StartTLS()
	defer other.Close()
	for name, row := range map[string]struct {
		places []string
		found  bool
	}{
		"it is the last one":     {[]string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1"}, true},
		"it is at none of them":  {[]string{"127.0.0.3", "127.0.0.4"}, false},
		"it is at the only one":  {[]string{"127.0.0.1"}, true},
		"it is beyond the bound": {[]string{"127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := client.New(testUID, must(client.Fixed(s.ca.Leaf(t, testUID, client.ManagerName)))(t), client.WithPort(s.port),
				client.WithLookup(func(context.Context, string) ([]string, error) { return row.places, nil }))
			defer c.Close()
			began := time.Now()
			_, err := c.Report(t.Context(), engine.Peer{Name: one, Address: "orders-1.invalid"})
			if (err == nil) != row.found || time.Since(began) > time.Second {
				t.Errorf("found: %v after %s, want %v", err, time.Since(began), row.found)
			}
		})
	}
}

func TestConnectionsAreKeptAndEnd(t *testing.T) {
	s := newStage(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	for range 20 {
		if _, err := s.client.Report(t.Context(), here()); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.dials.Load(); n != 1 {
		t.Errorf("20 calls in a row took %d connections, want 1", n)
	}
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			if _, err := s.client.Report(t.Context(), here()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := s.dials.Load(); n > 9 {
		t.Errorf("40 calls at once took %d connections, want 8 at most", n)
	}
	for i := range 200 { // names that come and go do not pile up; goleak sees it
		_, _ = s.client.Report(t.Context(), engine.Peer{Name: fmt.Sprintf("orders-%d", i+10), Address: "127.0.0.1"})
	}
	s.client.Close()
	if _, err := s.client.Report(t.Context(), here()); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
	if err := s.client.WatchReports(t.Context(), here(), func(engine.Report) {}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a watch after Close: %v", err)
	}
}

// must returns the value or ends the test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
