package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const (
	// envAsks says which program is asked to end, the first or the next; envChild is the child of the program before, and envAsked how often that
	// one was asked.
	envAsks  = "PLIMSOLL_PROCESS_ASKS"
	envChild = "PLIMSOLL_PROCESS_CHILD"
	envAsked = "PLIMSOLL_PROCESS_ASKED"
)

// sceneExchange becomes another program while a child runs. Somebody asks it to end, once, before or after.
func sceneExchange(t *Table) error {
	asked := make(chan os.Signal, 4)
	signal.Notify(asked, syscall.SIGTERM)
	child, err := t.Start(Spec{Path: "/bin/sh", Args: []string{"-c", "(sleep 0.7; exit 3) & sleep 1.1; exit 7"}})
	if err != nil {
		return err
	}
	if os.Getenv(envAsks) == "first" {
		if err := ask(asked); err != nil {
			return err
		}
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	env := []string{
		envScene + "=adopted", envChild + "=" + strconv.Itoa(child.PID()), envAsked + "=" + strconv.Itoa(len(asked)), envAsks + "=" + os.Getenv(envAsks),
	}
	return t.Become(self, os.Args, env)
}

// ask this process to end, and wait until that is heard.
func ask(asked chan os.Signal) error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); len(asked) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("it was asked to end, and did not hear of it")
		}
	}
	return nil
}

// adopted is the scene of the next program. It adopts before the reaper begins.
func adopted(t *Table) (func(*Table) error, error) {
	text := os.Getenv(envChild)
	if text == "" {
		return nil, nil //nolint:nilnil // another scene
	}
	asked := make(chan os.Signal, 4)
	signal.Notify(asked, syscall.SIGTERM)
	pid, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	child, err := t.Adopt(pid)
	if err != nil {
		return nil, err
	}
	return func(t *Table) error {
		begin := time.Now()
		if err := child.Signal(0); err != nil {
			return fmt.Errorf("the adopted child cannot be reached: %w", err)
		}
		if got := child.Exit(); got.Code != 7 {
			return fmt.Errorf("the adopted child ended by %s, want exit code 7", got)
		}
		if child.Signal(syscall.SIGKILL) != nil || !child.Exited() {
			return fmt.Errorf("a signal to a child that has ended is an error")
		}
		fmt.Printf("exit of the adopted child seen %s after the exchange\n", time.Since(begin).Round(time.Millisecond))
		before, err := strconv.Atoi(os.Getenv(envAsked))
		if err != nil {
			return err
		}
		if os.Getenv(envAsks) == "next" {
			if err := ask(asked); err != nil {
				return err
			}
		}
		if n := before + len(asked); n != 1 {
			return fmt.Errorf("asked to end %d times, want once", n)
		}
		return t.eventuallyAlone()
	}, nil
}

// TestExchange asks for the end before and after the exchange: it is heard once, by the one or the other program. In between it may be lost, as
// Become says.
func TestExchange(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]*syscall.SysProcAttr{"as an ordinary process": {Pdeathsig: syscall.SIGKILL}}
	if os.Getuid() == 0 {
		places["as PID 1"] = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	}
	for place, attr := range places {
		for _, asks := range []string{"first", "next"} {
			t.Run(place+", of which the "+asks+" program is asked to end", func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), self)
				cmd.Env = append(os.Environ(), envScene+"=exchange", envAsks+"="+asks)
				cmd.SysProcAttr = attr
				out, err := cmd.CombinedOutput()
				t.Logf("%s", out)
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestBecomeFails: a program that cannot begin changes nothing.
func TestBecomeFails(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "program")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	table := &Table{self: os.Getpid(), proc: "/proc"}
	if err := table.Become(f, os.Args, os.Environ()); err == nil {
		t.Fatal("it became an empty file")
	}
	if _, err := table.Adopt(1); err == nil {
		t.Error("it adopted a process that is no child of its own")
	}
}
