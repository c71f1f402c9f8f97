package agent

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxProgram bounds a program; it lies in the container's memory.
	maxProgram = 64 << 20
	// checkTimeout is what the next program gets to read what it would be left.
	checkTimeout = 10 * time.Second
)

// refused says why a program is not taken, for whoever sent it.
type refused struct{ why string }

func (r *refused) Error() string { return r.why }

func refuse(format string, args ...any) error { return &refused{fmt.Sprintf(format, args...)} }

// receive a program into memory, sealed: what was checked is what runs. It lies on no volume, because the pod's own are read-only or may
// hang, and an agent whose program is on a volume that hangs would hang with it.
func receive(from io.Reader, size int64, digest string) (*os.File, error) {
	if size <= 0 || size > maxProgram {
		return nil, refuse("a program of %d bytes; send its length, %d at the most", size, maxProgram)
	}
	f, err := inMemory("plimsoll-agent", true)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(from, size))
	if err != nil || n != size {
		_ = f.Close() // half of a program
		return nil, refuse("the program ended after %d of %d bytes: %v", n, size, err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		_ = f.Close() // not what was meant
		return nil, refuse("the program's digest is %s, announced was %s", got, digest)
	}
	if err := errors.Join(runsHere(f), seal(f)); err != nil {
		_ = f.Close() // cannot run
		return nil, err
	}
	return f, nil
}

// inMemory is a file in memory; run says that it is a program.
func inMemory(name string, run bool) (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	kind := unix.MFD_NOEXEC_SEAL
	if run {
		kind = unix.MFD_EXEC
	}
	fd, err := unix.MemfdCreate(name, flags|kind)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags) // an older kernel
	}
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func seal(f *os.File) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return fmt.Errorf("seal the program: %w", err)
	}
	return nil
}

// runsHere says whether a file is a program for this architecture.
func runsHere(f io.ReaderAt) error {
	var head [20]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || string(head[:4]) != "\x7fELF" {
		return refuse("what was sent is no program")
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if head[5] == 2 {
		order = binary.BigEndian
	}
	if machine := order.Uint16(head[18:]); machine != machines()[runtime.GOARCH] {
		return refuse("the program is for machine %d, and this is %s", machine, runtime.GOARCH)
	}
	return nil
}

// machines are the numbers by which ELF names an architecture.
func machines() map[string]uint16 {
	return map[string]uint16{"amd64": 62, "arm64": 183, "ppc64le": 21, "s390x": 22, "riscv64": 243}
}

// CheckCommand is the command by which a program says whether it understands what it would be left, without any effect.
const CheckCommand = "check"

// check has the program read what it would be left.
func check(ctx context.Context, program *os.File, kept []byte) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	runtime.LockOSThread() // the kernel ends the child when this thread ends
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/fd/"+strconv.Itoa(int(program.Fd())), CheckCommand)
	said := &few{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(kept)), said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return refuse("the program does not understand what it would be left: %v: %s", err, strings.TrimSpace(said.text))
	}
	return nil
}

// few keeps the first bytes that are written to it.
type few struct{ text string }

func (f *few) Write(p []byte) (int, error) {
	const most = 1 << 10
	f.text += string(p[:min(len(p), most-len(f.text))])
	return len(p), nil
}

// digestOfSelf is that of the program that runs.
func digestOfSelf() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
