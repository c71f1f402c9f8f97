package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll-operator/api/v1beta1"
)

// The Go types of an older version convert to v1's at compile time: the same fields, at the same paths.
var (
	_ = v1.DatabaseSpec(v1beta1.DatabaseSpec{})
	_ = v1.DatabaseSpec(v1alpha1.DatabaseSpec{})
	_ = v1.DatabaseStatus(v1beta1.DatabaseStatus{})
	_ = v1.DatabaseStatus(v1alpha1.DatabaseStatus{})
)

// kinds makes an empty Database of each version.
func kinds() map[string]func() client.Object {
	return map[string]func() client.Object{
		"v1":       func() client.Object { return &v1.Database{} },
		"v1beta1":  func() client.Object { return &v1beta1.Database{} },
		"v1alpha1": func() client.Object { return &v1alpha1.Database{} },
	}
}

// convert asks the conversion webhook, as an API server does.
func convert(t testing.TB, raw []byte, version string) ([]byte, error) {
	t.Helper()
	handler, err := conversionHandler()
	if err != nil {
		t.Fatal(err)
	}
	ask, err := json.Marshal(apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "ConversionReview"},
		Request: &apiextensionsv1.ConversionRequest{
			UID: types.UID("ask"), DesiredAPIVersion: "plimsoll.dev/" + version, Objects: []runtime.RawExtension{{Raw: raw}},
		},
	})
	if err != nil {
		return nil, err
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, ConvertPath, bytes.NewReader(ask)))
	var got apiextensionsv1.ConversionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		return nil, fmt.Errorf("status %d: %w", answer.Code, err)
	}
	if got.Response == nil || got.Response.Result.Status != metav1.StatusSuccess || len(got.Response.ConvertedObjects) != 1 {
		return nil, fmt.Errorf("refused: %+v", got.Response)
	}
	return got.Response.ConvertedObjects[0].Raw, nil
}

// TestConversionLosesNothing sends random Databases from each version to each other and back.
func TestConversionLosesNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("PLIMSOLL_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PLIMSOLL_SEED=%d runs this again", seed)
	fill := filler(seed)
	for from, empty := range kinds() {
		for through := range kinds() {
			if from == through {
				continue
			}
			for range 60 {
				want := empty()
				fill.Fill(want)
				want.GetObjectKind().SetGroupVersionKind(v1.GroupVersion.WithKind("Database").GroupKind().WithVersion(from))
				raw, err := json.Marshal(want)
				if err != nil {
					t.Fatal(err)
				}
				there, err := convert(t, raw, through)
				if err != nil {
					t.Fatalf("%s to %s: %v\n%s", from, through, err, raw)
				}
				// Every field must be known to the other version's Go type as well.
				other := kinds()[through]()
				strict := json.NewDecoder(bytes.NewReader(there))
				strict.DisallowUnknownFields()
				if err := strict.Decode(other); err != nil {
					t.Fatalf("%s as %s: %v", from, through, err)
				}
				if there, err = json.Marshal(other); err != nil {
					t.Fatal(err)
				}
				back, err := convert(t, there, from)
				if err != nil {
					t.Fatalf("%s back to %s: %v", through, from, err)
				}
				got := empty()
				if err := json.Unmarshal(back, got); err != nil {
					t.Fatal(err)
				}
				if !equality.Semantic.DeepEqual(want, got) {
					t.Fatalf("seed %d, %s through %s: %s", seed, from, through, cmp.Diff(want, got))
				}
			}
		}
	}
}

// filler makes random Databases of what JSON can carry.
func filler(seed uint64) *randfill.Filler {
	random := rand.New(rand.NewPCG(seed, seed))
	return randfill.New().RandSource(pcg{random}).NilChance(0.3).NumElements(1, 3).MaxDepth(14).Funcs(
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = *resource.NewMilliQuantity(random.Int64N(1<<50), resource.BinarySI)
			_ = q.String() // decoding fills the cached text, so this does too
		},
		func(at *metav1.Time, _ randfill.Continue) { at.Time = time.Unix(random.Int64N(4e9), 0).Local() },
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(m)
			m.ManagedFields, m.CreationTimestamp, m.DeletionTimestamp = nil, metav1.Time{}, nil
		},
		func(r *corev1.ResourceRequirements, c randfill.Continue) {
			c.FillNoCustom(r)
			r.Claims = nil
		},
		func(s *string, _ randfill.Continue) { *s = words()[random.IntN(len(words()))] },
	)
}

// words that have gone wrong somewhere: empty, quoted, not ASCII, line breaks, looking like other types.
func words() []string {
	return []string{"a", "orders-1", `"`, "ü\u2028", "a\nb", "null", "1024Mi", "1e3", "{}", "<&>", strings.Repeat("x", 300)}
}

type pcg struct{ *rand.Rand }

func (p pcg) Int63() int64 { return p.Int64() }
func (pcg) Seed(int64)     {}

// TestConversionTouchesNothingElse holds what typed conversion would break: the text of quantities, and fields of a later release.
func TestConversionTouchesNothingElse(t *testing.T) {
	raw := `{"apiVersion":"plimsoll.dev/v1alpha1","kind":"Database","metadata":{"name":"orders","uid":"u"},"spec":{"later":{"a":[1,2.5,"x",null]},"replicas":9007199254740993,"storage":{"size":"1024Mi"}}}`
	got, err := convert(t, []byte(raw), "v1")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(raw, "v1alpha1", "v1", 1)
	if diff := cmp.Diff(want, strings.TrimSpace(string(got))); diff != "" {
		t.Error(diff)
	}
}

func TestConversionRefusesWhatItDoesNotKnow(t *testing.T) {
	for sentence, r := range map[string]struct{ raw, version string }{
		"another kind":              {`{"apiVersion":"plimsoll.dev/v1","kind":"Backup"}`, "v1beta1"},
		"another group":             {`{"apiVersion":"example.com/v1","kind":"Database"}`, "v1beta1"},
		"a version that is unknown": {`{"apiVersion":"plimsoll.dev/v1","kind":"Database"}`, "v2"},
		"the same version":          {`{"apiVersion":"plimsoll.dev/v1","kind":"Database"}`, "v1"},
		"no object":                 {`[]`, "v1"},
	} {
		if got, err := convert(t, []byte(r.raw), r.version); err == nil {
			t.Errorf("%s: got %s", sentence, got)
		}
	}
}

// FuzzConvert sends the webhook what no API server would.
func FuzzConvert(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"plimsoll.dev/v1","kind":"Database","metadata":{"name":"a"},"spec":{}}`), "v1beta1")
	f.Add([]byte(`{"apiVersion":"plimsoll.dev/v1alpha1","kind":"Database","spec":null}`), "v1")
	f.Add([]byte(`null`), "")
	f.Fuzz(func(t *testing.T, raw []byte, version string) {
		if !json.Valid(raw) {
			return
		}
		got, err := convert(t, raw, version)
		if err != nil {
			return
		}
		var before, after map[string]any
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatalf("took %s", raw)
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatal(err)
		}
		if after["apiVersion"] != "plimsoll.dev/"+version {
			t.Fatalf("asked for %s, got %v", version, after["apiVersion"])
		}
		before["apiVersion"] = after["apiVersion"]
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatal(diff)
		}
	})
}
