package observed

import (
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that ends with the test: nothing in it is reached from outside.
type Namespace struct {
	Path string // of its file
	own  *os.File
}

// NewNamespace makes a namespace in which the loopback device is up.
func NewNamespace(t *testing.T) *Namespace {
	t.Helper()
	n := &Namespace{}
	away(t, func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() {
		var err error
		if n.own, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			t.Fatal(err)
		}
		ip(t, "link", "set", "lo", "up")
	})
	t.Cleanup(func() { n.own.Close() })
	n.Path = "/proc/self/fd/" + strconv.Itoa(int(n.own.Fd()))
	return n
}

// Do does something in the namespace: sockets that are made by this goroutine are of it, and so are programs that it starts.
func (n *Namespace) Do(t *testing.T, something func()) {
	t.Helper()
	away(t, func() error { return unix.Setns(int(n.own.Fd()), unix.CLONE_NEWNET) }, something)
}

func away(t *testing.T, enter func() error, something func()) {
	t.Helper()
	runtime.LockOSThread() // for good, if it does not find back
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	if err := enter(); err != nil {
		t.Fatalf("enter a network namespace: %v", err)
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Errorf("leave a network namespace: %v", err)
			return
		}
		runtime.UnlockOSThread()
	}()
	something()
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// Link joins two namespaces. What it carries passes through this process, because not every kernel can delay or drop (netem).
type Link struct {
	delay atomic.Int64 // of each way
	drop  atomic.Pointer[func([]byte) bool]
}

// Delay lets each packet wait from now on.
func (l *Link) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// Drop leaves packets out from now on that this says so of; it is asked by one goroutine for each way.
func (l *Link) Drop(these func(packet []byte) bool) { l.drop.Store(&these) }

// packetMost is more than a packet of these devices has.
const packetMost = 1 << 16

// Join gives two namespaces a device each, with an address of a network that both are in.
func Join(t *testing.T, a, b *Namespace, of, to netip.Prefix) *Link {
	t.Helper()
	l := &Link{}
	first, second := device(t, a, of), device(t, b, to)
	for _, way := range [][2]*os.File{{first, second}, {second, first}} {
		go l.carry(way[0], way[1])
	}
	return l
}

// device makes one whose packets are read and written here.
func device(t *testing.T, n *Namespace, address netip.Prefix) *os.File {
	t.Helper()
	var file *os.File
	n.Do(t, func() {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatalf("open /dev/net/tun: %v", err)
		}
		request, err := unix.NewIfreq("")
		if err != nil {
			t.Fatal(err)
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			t.Fatalf("make a tun device: %v", err)
		}
		file = os.NewFile(uintptr(fd), request.Name())
		ip(t, "address", "add", address.String(), "dev", request.Name())
		ip(t, "link", "set", request.Name(), "up")
	})
	t.Cleanup(func() { file.Close() })
	return file
}

// carry ends when a device is closed.
func (l *Link) carry(from, to *os.File) {
	type held struct {
		packet []byte
		until  time.Time
	}
	const most = 4096 // under way; more wait in the device
	queue := make(chan held, most)
	defer close(queue)
	go func() {
		for h := range queue {
			time.Sleep(time.Until(h.until))
			_, _ = to.Write(h.packet) // a packet that is not taken is lost, as on any link
		}
	}()
	buffer := make([]byte, packetMost)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if drop := l.drop.Load(); drop != nil && (*drop)(buffer[:n]) {
			continue
		}
		queue <- held{append([]byte(nil), buffer[:n]...), time.Now().Add(time.Duration(l.delay.Load()))}
	}
}
