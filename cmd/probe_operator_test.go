package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answers are what the API server says of the operator, one after another; the last one for ever.
type answers struct {
	client.Reader
	asked atomic.Int64
	all   []error
}

func (a *answers) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	n := a.asked.Add(1)
	return a.all[min(int(n), len(a.all))-1]
}

func TestAProbeRestsWhileItsOperatorIsGone(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	gone, forbidden := apierrors.NewNotFound(deployments, "m"), apierrors.NewForbidden(deployments, "m", errors.New("no"))
	away := apierrors.NewTimeoutError("away", 1)
	for sentence, row := range map[string]struct {
		says  []error
		rests bool // and begins anew, once the operator is back
	}{
		"it is there":                         {[]error{nil}, false},
		"it is gone":                          {[]error{nil, gone, gone, gone, nil}, true},
		"the rights are gone with it":         {[]error{nil, forbidden, gone, forbidden, forbidden, nil}, true},
		"there was never a right to ask":      {[]error{forbidden}, false},
		"it is made anew":                     {[]error{nil, gone, gone, nil, gone, gone, nil}, false},
		"nobody can be asked":                 {[]error{away}, false},
		"nobody can be asked for a moment":    {[]error{gone, gone, away, gone, gone, away}, false},
		"it is back, and cannot be asked for": {[]error{gone, gone, gone, away, nil}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			a := &answers{all: row.says}
			o := &operator{ObjectKey: client.ObjectKey{Namespace: "n", Name: "m"}, read: a, every: time.Millisecond, log: logr.Discard()}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				for a.asked.Load() < 50 && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
			ended := false
			again, err := o.measure(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				ended = true
				return nil
			})
			if (o.missing() != "") != row.rests {
				t.Errorf("it says %q", o.missing())
			}
			if again != row.rests || err != nil || !ended {
				t.Errorf("it begins anew: %v (%v), the measuring has ended: %v", again, err, ended)
			}
		})
	}
}

func TestAFailureToMeasureIsTold(t *testing.T) {
	o := &operator{log: logr.Discard()}
	again, err := o.measure(t.Context(), func(context.Context) error { return errors.ErrUnsupported })
	if again || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, %v", again, err)
	}
}
