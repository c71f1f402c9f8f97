package lease

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// askerFunc is an Asker for tests.
type askerFunc func(ctx context.Context, r Request) (Answer, error)

func (f askerFunc) Ask(ctx context.Context, r Request) (Answer, error) { return f(ctx, r) }

func named(name string) Identify {
	return func(*http.Request) (Caller, error) { return Caller{Name: name, Member: true}, nil }
}

func TestPeersSendAndHandlerAnswers(t *testing.T) {
	var got Request
	want := Answer{Database: "uid", From: "b", Seq: 7, OK: true, Promise: 5, To: "a", Position: Position{Known: true, Rank: 2, At: 9, Text: "0/9"}}
	server := httptest.NewTLSServer(Handler(askerFunc(func(_ context.Context, r Request) (Answer, error) {
		got = r
		return want, nil
	}), named("a")))
	defer server.Close()
	client := NewPeerClient(server.Client().Transport.(*http.Transport).TLSClientConfig)
	defer client.CloseIdleConnections()
	peers := NewPeers(client, func(string) string { return server.URL })
	sent := Request{Kind: KindGrant, Database: "uid", From: "a", Seq: 7, Epoch: 5, Leading: true, Needed: Position{Known: true, At: 3}}
	answer, err := peers.Send(t.Context(), "b", sent)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, answer); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(sent, got); d != "" {
		t.Error(d)
	}
	if _, err := peers.Send(t.Context(), "c", sent); err == nil {
		t.Error("b answered for c, and that was taken")
	}
}

func TestPeersGiveUpInTime(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	client := NewPeerClient(nil)
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := NewPeers(client, func(string) string { return server.URL }).Send(ctx, "b", Request{Kind: KindGrant, From: "a"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestHandlerRefuses(t *testing.T) {
	manager := func(*http.Request) (Caller, error) { return Caller{Name: "a"}, nil }
	good := `{"kind":"grant","database":"uid","from":"a","seq":1,"epoch":1}`
	tests := map[string]struct {
		method, path, body string
		who                Identify
		want               int
	}{
		"a fair request":                {"POST", "/lease/v1/grant", good, named("a"), 200},
		"a field of a later version":    {"POST", "/lease/v1/grant", strings.Replace(good, "{", `{"new":1,`, 1), named("a"), 200},
		"another's name":                {"POST", "/lease/v1/grant", good, named("b"), 403},
		"no certificate":                {"POST", "/lease/v1/grant", good, func(*http.Request) (Caller, error) { return Caller{}, errors.New("none") }, 403},
		"the manager, for a grant":      {"POST", "/lease/v1/grant", good, manager, 403},
		"the manager, for the status":   {"POST", "/lease/v1/status", strings.Replace(good, "grant", "status", 1), manager, 200},
		"another kind than the path's":  {"POST", "/lease/v1/support", good, named("a"), 403},
		"GET":                           {"GET", "/lease/v1/grant", "", named("a"), 404},
		"another path":                  {"POST", "/v1/grant", good, named("a"), 404},
		"no JSON":                       {"POST", "/lease/v1/grant", "hello", named("a"), 400},
		"two requests":                  {"POST", "/lease/v1/grant", good + good, named("a"), 400},
		"more than a message ever is":   {"POST", "/lease/v1/grant", strings.Repeat(" ", maxBody) + good, named("a"), 400},
		"a negative number as an epoch": {"POST", "/lease/v1/grant", strings.Replace(good, `"epoch":1`, `"epoch":-1`, 1), named("a"), 400},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := Handler(askerFunc(func(context.Context, Request) (Answer, error) { return Answer{From: "b"}, nil }), test.who)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
			if w.Code != test.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, test.want)
			}
		})
	}
}

// FuzzHandler: whatever is sent, the member is asked only what the caller's certificate and the path allow, once, and every refusal
// has words.
func FuzzHandler(f *testing.F) {
	f.Add("grant", []byte(`{"kind":"grant","database":"uid","from":"a","seq":1,"epoch":5}`))
	f.Add("support", []byte(`{"kind":"grant","from":"a"}`))
	f.Add("status", []byte(`{"kind":"status","from":"b"}`))
	f.Add("release", []byte(`{"kind":"release","from":"a"} {}`))
	f.Add("x", []byte(`null`))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		for _, caller := range []Caller{{Name: "a", Member: true}, {Name: "manager"}} {
			var asked []Request
			h := Handler(askerFunc(func(_ context.Context, r Request) (Answer, error) {
				asked = append(asked, r)
				return Answer{}, nil
			}), func(*http.Request) (Caller, error) { return caller, nil })
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
			r.URL.Path = Path + kind
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if len(asked) == 0 {
				if w.Code < 400 || w.Code >= 500 || w.Body.Len() == 0 {
					t.Errorf("refused with %d and %q", w.Code, w.Body)
				}
				continue
			}
			got := asked[0]
			switch {
			case len(asked) > 1 || w.Code != http.StatusOK:
				t.Errorf("asked %d times, answered %d", len(asked), w.Code)
			case got.From != caller.Name || got.Kind != Kind(kind):
				t.Errorf("%s asked %s as %s of %s", caller.Name, kind, got.Kind, got.From)
			case !caller.Member && got.Kind != KindStatus:
				t.Errorf("no member, and asked %s", got.Kind)
			case got.Validate() != nil:
				t.Errorf("asked what no member would: %v", got.Validate())
			}
		}
	})
}
