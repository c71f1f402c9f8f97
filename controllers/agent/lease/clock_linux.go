package lease

import (
	"syscall"
	"unsafe"
)

// BootClock is CLOCK_BOOTTIME: it goes on while the machine is suspended, and
// nobody can set it.
type BootClock struct{}

const clockBootTime = 7

// Now reads the clock. It panics where the kernel has none, because every
// promise of this package rests on it.
func (BootClock) Now() Time {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBootTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("clock_gettime(CLOCK_BOOTTIME): " + errno.Error()) //nolint:forbidigo // no promise holds without it
	}
	return Time(ts.Nano())
}
