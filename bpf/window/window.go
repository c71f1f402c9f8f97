// Package window shows an array of the kernel's as memory of ours.
package window

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Window is an array of the kernel's as memory of ours. It is read without a system call: those on maps keep the programs of tracepoints
// on the same CPU from running, and a statement would be missed.
type Window[T any] struct {
	memory []byte
	Values []T
}

// Open maps an array, whose values must have the size of T.
func Open[T any](m *ebpf.Map) (*Window[T], error) {
	var value T
	// The kernel rounds a value up to eight bytes, and the whole up to pages.
	size := int(unsafe.Sizeof(value))
	if size%8 != 0 || size != int(m.ValueSize()) {
		return nil, fmt.Errorf("map %s: its values have %d bytes, not %d: build the probe anew", m, m.ValueSize(), size)
	}
	n := int(m.MaxEntries())
	page := os.Getpagesize()
	memory, err := unix.Mmap(m.FD(), 0, (n*size+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", m, err)
	}
	return &Window[T]{memory: memory, Values: unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), n)}, nil
}

// Close unmaps it. Nil and what is closed are left as they are.
func (w *Window[T]) Close() error {
	if w == nil || w.memory == nil {
		return nil
	}
	memory := w.memory
	w.memory, w.Values = nil, nil
	if err := unix.Munmap(memory); err != nil {
		return fmt.Errorf("unmap counts: %w", err)
	}
	return nil
}
