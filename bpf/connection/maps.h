// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// All memory of this family. Each map is bounded; what happens at the bound is a reason in enum lost.
#ifndef PLIMSOLL_CONNECTION_MAPS_H
#define PLIMSOLL_CONNECTION_MAPS_H

#include "types.h"

// Containers to measure, by cgroup id. User space writes it.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct target);
} targets SEC(".maps");

// Cgroups of measured servers by where they listen: nobody's socket tells whose a connection is that finds none.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct listener);
	__type(value, u64);
} listeners SEC(".maps");

// Open connections by the address of their socket in the kernel. Allocated as they come, because few nodes have many.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 32768);
	__type(key, u64);
	__type(value, struct conn);
} conns SEC(".maps");

// Counts, in pages that user space reads without a system call; which one belongs to a key is in places. Free ones are in queues: some are kept
// for containers that are yet to come, so that clients of others cannot take what their totals need.
enum { PLACES = 4096, KEPT = 128 };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PLACES);
	__type(key, u32);
	__type(value, struct counts);
} counted SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLACES);
	__type(key, struct key);
	__type(value, u32);
} places SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, PLACES);
	__type(value, u32);
} vacant SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, KEPT);
	__type(value, u32);
} kept SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOST_REASONS);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

// births counts connections, for their marks.
volatile u32 births;

static __always_inline void lose(u32 reason)
{
	u64 *n = bpf_map_lookup_elem(&losses, &reason);
	if (n)
		__sync_fetch_and_add(n, 1);
}

#endif
