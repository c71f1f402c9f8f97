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

// kernelCosts are the quickest of a few tries each.
func kernelCosts() string {
	const calls, pages, tries = 10_000, 2_000, 5
	call := quickest(tries, func() {
		for range calls {
			unix.Getppid()
		}
	})
	size := unix.Getpagesize()
	touch := quickest(tries, func() {
		memory, err := unix.Mmap(-1, 0, pages*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return
		}
		for i := range pages {
			memory[i*size] = 1
		}
		_ = unix.Munmap(memory) // a few megabytes until the process ends
	})
	start := quickest(tries, func() { _ = exec.Command("/bin/true").Run() }) //nolint:noctx // it ends by itself
	return fmt.Sprintf("a system call takes %.2f us there, a page's first touch %.2f us, a program's start and end %.1f ms",
		call.Seconds()/calls*1e6, touch.Seconds()/pages*1e6, start.Seconds()*1e3)
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
