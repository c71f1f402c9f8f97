package bench

import (
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Machine tells a machine by its cores, its architecture and what it costs there to enter the kernel. On a virtual machine whose pages the
// processor does not translate by itself that costs ten times as much as on another, of the same model by its name: every failover takes longer
// there, and its figures stand beside no others.
func Machine() string {
	return fmt.Sprintf("%d cores, %s, %s", runtime.NumCPU(), runtime.GOARCH, kernelCosts())
}

// Slowness is how many times as long as on a usual machine it takes here to enter the kernel, from 1 to 4: for the patience of tests.
func Slowness() float64 {
	const usual = 3 * time.Microsecond // and less, of a page's first touch; where every such touch is the hypervisor's work it is 12 or more
	return min(max(float64(touch())/float64(usual), 1), 4)
}

// tries of which the quickest counts.
const tries = 5

// touch of a page of new memory for the first time.
func touch() time.Duration {
	const pages = 2_000
	size := unix.Getpagesize()
	return quickest(tries, func() {
		memory, err := unix.Mmap(-1, 0, pages*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return
		}
		for i := range pages {
			memory[i*size] = 1
		}
		_ = unix.Munmap(memory) // a few megabytes until the process ends
	}) / pages
}

func kernelCosts() string {
	const calls = 10_000
	call := quickest(tries, func() {
		for range calls {
			unix.Getppid()
		}
	})
	start := quickest(tries, func() { _ = exec.Command("/bin/true").Run() }) //nolint:noctx // it ends by itself
	return fmt.Sprintf("a system call takes %.2f us there, a page's first touch %.2f us, a program's start and end %.1f ms",
		call.Seconds()/calls*1e6, touch().Seconds()*1e6, start.Seconds()*1e3)
}

func quickest(tries int, do func()) time.Duration {
	var least time.Duration
	for i := range tries {
		began := time.Now()
		do()
		if took := time.Since(began); i == 0 || took < least {
			least = took
		}
	}
	return least
}
