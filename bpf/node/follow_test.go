package node

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/query"
)

func TestAProgramThatWasRefusedIsTriedAgainUnlessItIsUnfit(t *testing.T) {
	begin := time.Unix(1000, 0)
	for sentence, row := range map[string]struct {
		err  error
		want bool
	}{
		"no right":     {fmt.Errorf("attach: %w", syscall.EACCES), true},
		"no memory":    {fmt.Errorf("attach: %w", syscall.ENOMEM), true},
		"another file": {fmt.Errorf("/proc/7/exe: %w", &query.UnfitError{Why: errors.New("it has no build-id")}), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			one := &target{}
			if !one.due(begin) {
				t.Fatal("it is not looked for at first")
			}
			one.refuse(row.err, begin)
			if one.due(begin.Add(retryEvery - time.Second)) {
				t.Error("it is tried again at once")
			}
			if got := one.due(begin.Add(retryEvery)); got != row.want {
				t.Errorf("tried again %v, want %v", got, row.want)
			}
		})
	}
}

func TestANodeIsAliveWhileItsLooksEnd(t *testing.T) {
	begin := time.Unix(1000, 0)
	for sentence, row := range map[string]struct {
		looked, now time.Time
		want        bool
	}{
		"it has not begun": {time.Unix(0, 0), begin, true},
		"it looks":         {begin, begin.Add(lookMost - time.Second), true},
		"it hangs":         {begin, begin.Add(lookMost), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if err := alive(row.looked, row.now); (err == nil) != row.want {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAProgramThatIsNeverReadIsTold(t *testing.T) {
	begin := time.Unix(1000, 0)
	n := &Node{Options: Options{Proc: t.TempDir(), Log: testr.New(t)}, targets: map[attribute.Container]*target{}}
	one := &target{cgroups: []uint64{1}, opened: begin}
	n.targets[attribute.Container{Pod: "p", ID: "c"}] = one
	for after, want := range map[time.Duration]string{openMost - time.Second: Waiting, openMost: Unseen} {
		one.refused = nil
		n.syscalls = errors.New("none")
		if err := n.attach(begin.Add(after)); err != nil {
			t.Fatal(err)
		}
		if got := n.state(one); got != want {
			t.Errorf("after %v it is %s, want %s", after, got, want)
		}
	}
}
