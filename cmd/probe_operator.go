package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// operatorEvery is how often a probe looks whether its operator is there, and operatorTimeout bounds a look.
	operatorEvery, operatorTimeout = time.Minute, 10 * time.Second
	// operatorLooks in a row must find that it is gone: an upgrade may make it anew.
	operatorLooks = 3
)

// operator is the Deployment of the manager that asked for this probe.
type operator struct {
	client.ObjectKey
	read  client.Reader
	every time.Duration
	log   logr.Logger

	rests atomic.Bool // it is gone
	seen  bool        // it was there
}

// parseOperator reads namespace/name.
func parseOperator(text string) (client.ObjectKey, error) {
	if text == "" {
		return client.ObjectKey{}, nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return client.ObjectKey{}, fmt.Errorf("--operator is %q: give the namespace and the name of the manager's Deployment, as plimsoll-system/plimsoll-manager", text)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// measure runs until ctx ends, or until the operator is certainly gone. Then it waits until it is back, and gives back true: the probe begins anew.
func (o *operator) measure(ctx context.Context, run func(context.Context) error) (again bool, err error) {
	measuring, rest := context.WithCancel(ctx)
	defer rest()
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() { ended <- run(measuring) }()
	go func() {
		defer close(gone)
		o.await(measuring, false)
	}()
	select {
	case err := <-ended:
		rest()
		<-gone
		return false, err
	case <-gone:
	}
	rest()
	if err := <-ended; err != nil || ctx.Err() != nil {
		return false, err
	}
	o.rests.Store(true)
	o.log.Info(o.missing())
	o.await(ctx, true)
	return ctx.Err() == nil, nil
}

// missing says what keeps everything from being measured; empty while the operator is there.
func (o *operator) missing() string {
	if !o.rests.Load() {
		return ""
	}
	return fmt.Sprintf("nothing is measured until the operator is back: its Deployment %s is gone, or the right to get it", o.ObjectKey)
}

// await returns when the operator is there, or certainly not, or when ctx ends. Who cannot be asked says neither.
func (o *operator) await(ctx context.Context, there bool) {
	if o.Name == "" {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for found := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch is, certain := o.look(ctx); {
		case !certain:
			found = 0
		case is && there:
			return
		case is != there:
			found = 0
		default:
			found++
		}
		if found >= operatorLooks {
			return
		}
	}
}

// look whether the operator is there. To have no right to ask any more is an answer, too: the rights of a probe come and go with its operator.
func (o *operator) look(ctx context.Context) (is, certain bool) {
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	d := &metav1.PartialObjectMetadata{}
	d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	err := o.read.Get(ctx, o.ObjectKey, d)
	o.seen = o.seen || err == nil
	return err == nil, err == nil || apierrors.IsNotFound(err) || o.seen && apierrors.IsForbidden(err)
}
