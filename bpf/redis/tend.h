// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What user space does with the memory of this family. It runs this program to do so, because a system call on a map keeps the programs of
// tracepoints on its CPU from running.
#ifndef PLIMSOLL_REDIS_TEND_H
#define PLIMSOLL_REDIS_TEND_H

#include "count.h"

// What is done, the first argument. It answers 1 if it did.
enum tend {
	TEND_WATCH,    // measure a cgroup (second argument), whose server has these ports (third, 16 bits each); slow commands take longer than this (fourth)
	TEND_UNWATCH,  // measure a cgroup (second argument) no longer
	TEND_OFFER,    // a place (second argument) that is vacant
	TEND_RETIRE,   // take this place (second argument) from its key
	TEND_SESSIONS, // begin this round (second argument) of tending, and forget sessions that nobody has had for two
	TEND_TOLD,     // the text of this print (second argument) is known in this round of texts (third)
};

// reserve makes places for what of a cgroup finds no place of its own: successes and errors.
static __always_inline bool reserve(u64 cgroup)
{
	struct key well = {.cgroup = cgroup}, failed = {.cgroup = cgroup, .code = 1};
	u32 at;
	return claim(&well, &at, FROM_KEPT) && claim(&failed, &at, FROM_KEPT);
}

static __noinline int offer(u32 at)
{
	struct counts *c = bpf_map_lookup_elem(&counted, &at);
	if (!c || c->live == LIVE)
		return 0;
	// Word by word and volatile, or the compiler calls memset, which is not there.
	volatile u64 *words = (volatile u64 *)c;
	for (u32 i = 0; i < sizeof(*c) / sizeof(*words); i++)
		words[i] = 0;
	return !bpf_map_push_elem(&kept, &at, 0) || !bpf_map_push_elem(&vacant, &at, 0);
}

static __always_inline int retire(u32 at)
{
	struct counts *c = bpf_map_lookup_elem(&counted, &at);
	if (!c || c->live != LIVE)
		return 0;
	struct key key = c->key;
	u32 *found = bpf_map_lookup_elem(&places, &key);
	if (!found || *found != at || bpf_map_delete_elem(&places, &key))
		return 0;
	c->live = LEAVING;
	return 1;
}

static __always_inline void used(u64 who, u64 round)
{
	struct session *s = bpf_map_lookup_elem(&sessions, &who);
	if (s)
		s->used = round;
}

static long used_by_conn(void *map, const void *key, struct conn *c, u64 *round)
{
	used(c->who, *round);
	return 0;
}

static long used_by_place(u32 i, u64 *round)
{
	struct counts *c = bpf_map_lookup_elem(&counted, &i);
	if (c && c->live != VACANT)
		used(c->key.who, *round);
	return 0;
}

enum { STALE = 32 }; // sessions that are forgotten in one round
struct stale {
	u64 round, who[STALE];
	u32 n;
};

static long stale_session(void *map, const u64 *who, struct session *s, struct stale *found)
{
	if (s->used + 2 > found->round)
		return 0;
	if (found->n >= STALE)
		return 1;
	found->who[found->n & (STALE - 1)] = *who;
	found->n++;
	return 0;
}

static __noinline int sweep_sessions(u64 round)
{
	struct stale found = {.round = round};
	tending = round;
	bpf_for_each_map_elem(&conns, used_by_conn, &round, 0);
	bpf_loop(PLACES, used_by_place, &round, 0);
	bpf_for_each_map_elem(&sessions, stale_session, &found, 0);
	for (u32 i = 0; i < STALE; i++)
		if (i < found.n)
			bpf_map_delete_elem(&sessions, &found.who[i]);
	return found.n;
}

SEC("raw_tracepoint/tend")
int tend(u64 *ctx)
{
	u64 cgroup = ctx[1];
	struct target target = {.ports = {ctx[2], ctx[2] >> 16}, .slow_ns = ctx[3]};
	bool new;
	switch (ctx[0]) {
	case TEND_WATCH:
		new = !bpf_map_lookup_elem(&targets, &cgroup);
		if (!reserve(cgroup) || bpf_map_update_elem(&targets, &cgroup, &target, BPF_ANY))
			return 0;
		if (new)
			__sync_fetch_and_add(&marks[cgroup & (MARKS - 1)], 1);
		__sync_fetch_and_add(&watch_round, 1); // its connections take the new bound
		return 1;
	case TEND_UNWATCH:
		if (bpf_map_delete_elem(&targets, &cgroup))
			return 0;
		__sync_fetch_and_sub(&marks[cgroup & (MARKS - 1)], 1);
		__sync_fetch_and_add(&watch_round, 1);
		return 1;
	case TEND_OFFER:
		return offer(ctx[1]);
	case TEND_RETIRE:
		return retire(ctx[1]);
	case TEND_SESSIONS:
		return sweep_sessions(ctx[1]);
	case TEND_TOLD:
		return tell_no_more(ctx[1], ctx[2]);
	}
	return 0;
}

#endif
