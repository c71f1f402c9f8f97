// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// All memory of this family. Each map is bounded; what happens at the bound is a reason in enum lost.
#ifndef PLIMSOLL_REDIS_MAPS_H
#define PLIMSOLL_REDIS_MAPS_H

#include "types.h"

// Containers to measure, by cgroup id. User space writes it.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct target);
} targets SEC(".maps");

// Connections. Allocated as they come, because few nodes have many.
struct conn_key {
	u32 pid;
	s32 fd;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct conn_key);
	__type(value, struct conn);
} conns SEC(".maps");

// A new connection is a copy of this; nobody writes to it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct conn);
} blank SEC(".maps");

// Threads that read or write connections: a server has one, or some more (io-threads).
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

// Which descriptor an object of libssl seals.
struct seal_key {
	u64 ssl;
	u32 pid, pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct seal_key);
	__type(value, s32);
} seals SEC(".maps");

// Units of pipelines that are deeper than the FIFO of the connection.
struct spill_key {
	u64 born;
	u32 pid;
	s32 fd;
	u32 which, seq;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 32768);
	__type(key, struct spill_key);
	__type(value, struct unit);
} spill SEC(".maps");

// What is known of commands, and of the first words of errors, by the hashes of their names. User space writes them once.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct command);
} commands SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, u64);
	__type(value, u32);
} errors SEC(".maps");

// Prints whose text user space has been sent, each mixed with text_round. One that is forgotten is sent again.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u8);
} texts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct session);
} sessions SEC(".maps");

// Counts, in pages that user space reads without a system call; which one belongs to a key is in places. Free ones are in queues: some are kept
// for containers that are yet to come, so that commands of others cannot take what their totals need.
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
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOST_REASONS);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

// tending is the round of tending (tend.h). watch_round grows whenever what is measured changes: each connection then looks
// whether that is of its own container.
volatile u64 tending;
volatile u32 watch_round;

// marks counts the targets whose cgroup's id ends so: read and write are hooked for the whole node, and whoever is not of a target is to
// pay as little as can be.
volatile u32 marks[MARKS];

static __always_inline bool marked(u64 cgroup)
{
	return marks[cgroup & (MARKS - 1)] != 0;
}

// text_round grows whenever user space has forgotten texts: no text is known then, and each is sent again when it next comes.
volatile u32 text_round;

// told_as is the key in texts of a print: of one round no two are alike.
static __always_inline u64 told_as(u64 print, u32 round)
{
	return print ^ round * 0x9fb21c651e98df25ULL;
}

static __always_inline bool tell_no_more(u64 print, u32 round)
{
	u64 key = told_as(print, round);
	u8 one = 1;
	return !bpf_map_update_elem(&texts, &key, &one, BPF_ANY);
}

static __always_inline void lose(u32 reason)
{
	u64 *n = bpf_map_lookup_elem(&losses, &reason);
	if (n)
		__sync_fetch_and_add(n, 1);
}

#endif
