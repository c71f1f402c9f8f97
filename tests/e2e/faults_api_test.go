package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// killWithoutAPI lets the API server come back a while after the postmaster was killed without it. It finds that first: its pod's place
// is the API server's knowledge.
func killWithoutAPI(ctx context.Context, s *scene) error {
	processes, err := s.cluster.Processes(ctx, s.key.Namespace, s.leader.Name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(processes, func(p cluster.Process) bool { return strings.Contains(p.Command, "bin/postgres") })
	if i < 0 {
		return fmt.Errorf("%s runs no server", s.leader.Name)
	}
	if err := s.cluster.StopAPIServer(ctx); err != nil {
		return err
	}
	s.hurtAt = time.Now()
	killed := syscall.Kill(processes[i].PID, syscall.SIGKILL)
	if killed == nil {
		time.Sleep(watched)
	}
	if err := errors.Join(killed, s.cluster.StartAPIServer(context.WithoutCancel(ctx))); err != nil {
		return fmt.Errorf("kill the server of %s without the API server: %w", s.leader.Name, err)
	}
	return nil
}

// saysItWaited wants the time line of the change of hands to tell that the new leader waited for the API server, and for how long, and that
// the old one said that it had ended: its agent lived.
func saysItWaited(ctx context.Context, s *scene) error {
	told := regexp.MustCompile(`([0-9.]+) s for the API server`)
	wrong := errors.New("status was not read")
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		now, err := s.get(ctx)
		if err != nil {
			return err
		}
		if len(now.Status.HandOvers) == 0 || now.Status.HandOvers[0].Epoch <= s.epoch {
			wrong = fmt.Errorf("status tells of no change of hands after epoch %d", s.epoch)
			continue
		}
		h := now.Status.HandOvers[0]
		s.t.Logf("epoch %d from %s to %s (%s), waited %s: %+v", h.Epoch, h.From, h.To, h.Why, h.Waited, h.Steps)
		match := told.FindStringSubmatch(h.Waited)
		if match == nil {
			return fmt.Errorf("the change of hands at epoch %d waited %q, and the API server was away for %s", h.Epoch, h.Waited, watched)
		}
		// Its own six seconds of standing aside are not the API server's, where the old leader won.
		if waited, err := strconv.ParseFloat(match[1], 64); err != nil || waited < (watched-8*time.Second).Seconds() || waited > (watched+15*time.Second).Seconds() {
			return fmt.Errorf("the change of hands at epoch %d waited %q, and the API server was away for %s", h.Epoch, h.Waited, watched)
		}
		if !slices.ContainsFunc(h.Steps, func(step v1.HandOverStep) bool { return step.Name == "released" }) {
			return fmt.Errorf("the change of hands at epoch %d does not tell of a release: %+v", h.Epoch, h.Steps)
		}
		return nil
	}
	return wrong
}
