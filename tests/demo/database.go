package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/install"
)

const (
	readyLimit = 10 * time.Minute
	// stalledFor is how long a Database may say that it needs a person before the demo believes it.
	stalledFor = 15 * time.Second
)

// database creates the sample and waits until it is ready.
func (d *demo) database(ctx context.Context, k install.Kubectl, detail func(string)) error {
	manifest, err := os.ReadFile(filepath.Join(d.root, sample))
	if err != nil {
		return fmt.Errorf("read the sample: %w", err)
	}
	space := fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels: {pod-security.kubernetes.io/enforce: restricted}\n", namespace)
	if _, err := k.Run(ctx, space, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("make namespace %s: %w", namespace, err)
	}
	if _, err := k.Run(ctx, manifest, "-n", namespace, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("create Database %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	w := waiting{now: time.Now}
	for {
		text, err := k.Run(ctx, nil, "-n", namespace, "get", "databases.v1.plimsoll.dev", name, "-o", "json")
		if err == nil {
			var seen v1.Database
			if err := json.Unmarshal([]byte(text), &seen); err != nil {
				return fmt.Errorf("read Database %s: %w", name, err)
			}
			done, err := w.look(seen)
			if done || err != nil {
				return err
			}
			detail(w.detail)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready after %s: %s; see `kubectl -n %s describe database %s`", readyLimit, w.detail, namespace, name)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// waiting judges what a Database says of itself while somebody waits for it.
type waiting struct {
	now     func() time.Time
	stalled time.Time
	detail  string
}

func (w *waiting) look(d v1.Database) (ready bool, err error) {
	w.detail = inWords(d)
	if d.Status.ObservedGeneration == d.Generation && meta.IsStatusConditionTrue(d.Status.Conditions, v1.ConditionReady) {
		return true, nil
	}
	stalled := meta.FindStatusCondition(d.Status.Conditions, v1.ConditionStalled)
	if stalled == nil || stalled.Status != metav1.ConditionTrue {
		w.stalled = time.Time{}
		return false, nil
	}
	if w.stalled.IsZero() {
		w.stalled = w.now()
	}
	if w.now().Sub(w.stalled) > stalledFor {
		return false, errors.New(stalled.Message)
	}
	return false, nil
}

// inWords says what a Database waits for: how many are ready, and what the others do.
func inWords(d v1.Database) string {
	if d.Status.ObservedGeneration == 0 {
		return "the operator has not seen it yet"
	}
	words := []string{d.Status.Ready + " ready"}
	for _, i := range d.Status.Instances {
		if !i.Ready && i.State != "" {
			words = append(words, i.Name+" "+i.State)
		}
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1.ConditionReady); len(words) == 1 && c != nil {
		words = append(words, c.Message)
	}
	return strings.Join(words, ", ")
}
