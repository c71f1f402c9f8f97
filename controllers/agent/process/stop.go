package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	firstLook = time.Millisecond
	laterLook = 10 * time.Millisecond
)

// HardStop sends SIGKILL to every other process of the table until none is left that could run another instruction, and
// returns how long that took. A process in uninterruptible sleep with the kill pending counts as ended: it never returns to
// user mode. An error names who is left when the context ends.
func (t *Table) HardStop(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	pause := firstLook
	for {
		left, err := t.kill()
		if err != nil {
			return time.Since(begin), fmt.Errorf("hard stop: %w", err)
		}
		if len(left) == 0 {
			return time.Since(begin), nil
		}
		select {
		case <-ctx.Done():
			return time.Since(begin), fmt.Errorf("hard stop: processes %v are still alive after %s", left, time.Since(begin).Round(time.Millisecond))
		case <-time.After(pause):
			pause = min(2*pause, laterLook)
		}
	}
}

// kill sends SIGKILL to all and returns those that are not dead yet.
func (t *Table) kill() ([]int, error) {
	if t.init {
		// To all at once: a fork that is under way either comes before and is hit, or fails. Nothing slips through.
		if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EPERM) {
			return nil, err
		}
	}
	others, err := t.others()
	if err != nil {
		return nil, err
	}
	left := others[:0]
	for _, pid := range others {
		if t.dead(pid) {
			continue
		}
		left = append(left, pid)
		if !t.init {
			_ = syscall.Kill(pid, syscall.SIGKILL) // one that has just ended is fine; one that resists is seen at the next look
		}
	}
	return left, nil
}

// others lists every process of the table but this one.
func (t *Table) others() ([]int, error) {
	names, err := readNames(t.proc)
	if err != nil {
		return nil, err
	}
	parent := make(map[int]int, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == t.self {
			continue
		}
		s, ok := readStat(filepath.Join(t.proc, name, "stat"))
		if ok {
			parent[pid] = s.parent
		}
	}
	var pids []int
	for pid := range parent {
		if t.init || t.descends(pid, parent) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

func (t *Table) descends(pid int, parent map[int]int) bool {
	for range len(parent) + 1 {
		up, ok := parent[pid]
		if !ok {
			return false
		}
		if up == t.self {
			return true
		}
		pid = up
	}
	return false
}

// dead says that no thread of the process can return to user mode: each has ended, or sleeps in the kernel with the kill
// pending. The first thread's state alone would not do: it may have ended before the others.
func (t *Table) dead(pid int) bool {
	dir := filepath.Join(t.proc, strconv.Itoa(pid), "task")
	threads, err := readNames(dir)
	if err != nil {
		return true // gone
	}
	for _, tid := range threads {
		s, ok := readStat(filepath.Join(dir, tid, "stat"))
		if !ok || s.state == 'Z' || s.state == 'X' {
			continue
		}
		if s.state == 'D' && killPending(filepath.Join(dir, tid, "status")) {
			continue
		}
		return false
	}
	return true
}

type stat struct {
	state  byte
	parent int
}

// readStat reads state and parent. The command's name before them may hold spaces and parentheses; the last one ends it.
func readStat(path string) (stat, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return stat{}, false
	}
	return parseStat(raw)
}

func parseStat(raw []byte) (stat, bool) {
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return stat{}, false
	}
	fields := strings.Fields(string(raw[end+1:]))
	if len(fields) < 2 || len(fields[0]) != 1 {
		return stat{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return stat{}, false
	}
	return stat{state: fields[0][0], parent: parent}, true
}

// killPending says whether SIGKILL waits for the thread, its own or the process's.
func killPending(path string) bool {
	raw, err := os.ReadFile(path)
	if err != nil {
		return true // gone
	}
	return parsePending(raw)
}

func parsePending(raw []byte) bool {
	const bit = 1 << (uint(syscall.SIGKILL) - 1)
	for line := range strings.Lines(string(raw)) {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && mask&bit != 0 {
			return true
		}
	}
	return false
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}
