package scrape

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// place is a guarded door, an API server that lets in who is called "scraper", and a clock that stands still.
type place struct {
	t     *testing.T
	now   time.Time
	guard *guard
	door  http.Handler
	mu    sync.Mutex
	asked int // how many TokenReviews
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, now: time.Unix(1e9, 0)}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}} // without pauses
	who, err := authentication.NewForConfigAndClient(config, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	may, err := authorization.NewForConfigAndClient(config, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	p.guard = newGuard(who.TokenReviews(), may.SubjectAccessReviews(), func() time.Time { return p.now })
	p.door = p.guard.before(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return p
}

// serve answers for the API server: a token is its owner's name, except that nobody owns a forged one.
func (p *place) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		p.mu.Lock()
		p.asked++
		p.mu.Unlock()
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			p.t.Error(err)
		}
		review.Status.User.Username = review.Spec.Token
		review.Status.Authenticated = !strings.HasPrefix(review.Spec.Token, "forged")
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		p.t.Error(err)
	}
	review.Status.Allowed = strings.HasPrefix(review.Spec.User, "scraper")
	_ = json.NewEncoder(w).Encode(review)
}

// comes returns what a token is answered, and how often the API server was asked for that.
func (p *place) comes(token string) (status, asked int) {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	before := p.asked
	p.door.ServeHTTP(w, r)
	return w.Code, p.asked - before
}

func TestAnAnswerIsGoodForAWhile(t *testing.T) {
	for token, row := range map[string]struct {
		status int
		keep   time.Duration
	}{
		"scraper":  {http.StatusOK, time.Minute},
		"stranger": {http.StatusForbidden, 10 * time.Second},
		"forged":   {http.StatusUnauthorized, 10 * time.Second},
	} {
		t.Run(token, func(t *testing.T) {
			p := newPlace(t)
			for _, step := range []struct {
				after time.Duration
				asked int
			}{{0, 1}, {row.keep - 1, 0}, {1, 1}, {row.keep - 1, 0}} {
				p.now = p.now.Add(step.after)
				if status, asked := p.comes(token); status != row.status || asked != step.asked {
					t.Errorf("%s later it is answered %d, and the API server asked %d times; want %d and %d", step.after, status, asked, row.status, step.asked)
				}
			}
		})
	}
}

func TestRefusedTokensPushNobodyOut(t *testing.T) {
	p := newPlace(t)
	p.comes("scraper")
	for n := range 2 * maxAnswers {
		p.comes(fmt.Sprint("forged", n))
	}
	if status, asked := p.comes("scraper"); status != http.StatusOK || asked != 0 {
		t.Errorf("it is answered %d, and the API server asked %d times", status, asked)
	}
	for n := range 2 * maxAnswers {
		p.comes(fmt.Sprint("scraper", n))
	}
	if yes, no := p.guard.yes.Len(), p.guard.no.Len(); yes != maxAnswers || no != maxAnswers {
		t.Errorf("it remembers %d that are let in and %d that are not, want %d of each", yes, no, maxAnswers)
	}
}
