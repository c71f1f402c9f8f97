// Package scrape lets in to the manager's metrics whom the API server lets get them.
package scrape

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// yesFor and noFor are how long an answer of the API server is good for: a scraper comes again and again, and one whose right is taken
	// away is let in for so long after.
	yesFor, noFor = time.Minute, 10 * time.Second
	// maxAnswers bounds those that are remembered of each kind; what was asked longest ago goes first, and is asked anew.
	maxAnswers = 256
	// maxAsking bounds the questions at one time, so that nobody keeps the API server busy through the manager.
	maxAsking  = 4
	askTimeout = 10 * time.Second
	maxToken   = 16 << 10
)

// Filter asks the API server who has a token (TokenReview), and whether they may get the path (SubjectAccessReview). It does what
// controller-runtime's own filter does without the API server's libraries, which would be a third of the manager's program and of the
// memory that it takes when nothing is to do.
func Filter(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	who, err := authentication.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make a client for TokenReviews: %w", err)
	}
	may, err := authorization.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make a client for SubjectAccessReviews: %w", err)
	}
	g := newGuard(who.TokenReviews(), may.SubjectAccessReviews(), time.Now)
	return func(log logr.Logger, next http.Handler) (http.Handler, error) { return g.before(log, next), nil }, nil
}

type guard struct {
	who    authentication.TokenReviewInterface
	may    authorization.SubjectAccessReviewInterface
	now    func() time.Time
	asking chan struct{}
	// yes and no are the answers that are remembered, by question. Anybody can make up tokens that are refused, so those push out each
	// other and nobody who is let in.
	yes, no *lru.Cache
}

func newGuard(who authentication.TokenReviewInterface, may authorization.SubjectAccessReviewInterface, now func() time.Time) *guard {
	return &guard{who: who, may: may, now: now, asking: make(chan struct{}, maxAsking), yes: lru.New(maxAnswers), no: lru.New(maxAnswers)}
}

// question is who asks for what; the token itself is not kept.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

// answer is the status to answer with, which is http.StatusOK for yes.
type answer struct {
	status int
	until  time.Time
}

func (g *guard) before(log logr.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := bearer(r.Header.Get("Authorization"))
		if token == "" {
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		status, err := g.ask(r.Context(), question{token: sha256.Sum256([]byte(token)), verb: strings.ToLower(r.Method), path: r.URL.Path}, token)
		switch {
		case err != nil:
			log.Error(err, "cannot tell who may see the metrics")
			http.Error(w, "the API server does not say who you are", http.StatusInternalServerError)
		case status != http.StatusOK:
			http.Error(w, http.StatusText(status), status)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// bearer is the token of a header; empty for none, and for one that is none.
func bearer(header string) string {
	kind, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(kind, "Bearer") || len(token) > maxToken {
		return ""
	}
	return token
}

func (g *guard) ask(ctx context.Context, q question, token string) (int, error) {
	if status, ok := g.remembered(q); ok {
		return status, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for a turn to ask the API server: %w", ctx.Err())
	}
	status, err := g.review(ctx, q, token)
	if err != nil {
		return 0, err
	}
	g.remember(q, status)
	return status, nil
}

func (g *guard) review(ctx context.Context, q question, token string) (int, error) {
	review, err := g.who.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("ask whose a token is: %w", err)
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := g.may.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("ask what %s may do: %w", user.Username, err)
	}
	if !access.Status.Allowed || access.Status.Denied {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (g *guard) remembered(q question) (status int, ok bool) {
	for _, known := range []*lru.Cache{g.yes, g.no} {
		if found, ok := known.Get(q); ok && g.now().Before(found.(answer).until) {
			return found.(answer).status, true
		}
	}
	return 0, false
}

func (g *guard) remember(q question, status int) {
	known, keep := g.no, noFor
	if status == http.StatusOK {
		known, keep = g.yes, yesFor
	}
	known.Add(q, answer{status: status, until: g.now().Add(keep)})
}
