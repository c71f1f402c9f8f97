// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What user space does with the memory of this family. It runs this program to do so, because a system call on a map keeps the programs of
// tracepoints on its CPU from running, those that count statements too.
#ifndef PLIMSOLL_CONNECTION_TEND_H
#define PLIMSOLL_CONNECTION_TEND_H

#include "life.h"

// What is done, the first argument. It answers 1 if it did.
enum tend {
	TEND_WATCH,   // measure a cgroup (second argument), whose server has this port (third)
	TEND_UNWATCH, // measure a cgroup (second argument) no longer
	TEND_OFFER,   // a place (second argument) that is vacant
	TEND_RETIRE,  // take this place (second argument) from its key
	TEND_LOOK,    // take over what sockets have counted
};

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

// look_at takes over what a socket has counted. The connection may end meanwhile, and the memory of both be that of others: the mark tells. If nobody
// saw its end, its socket is closed or another's.
static long look_at(void *map, const u64 *key, struct conn *c, void *ctx)
{
	u64 mark = *(volatile u64 *)&c->in >> MARK, sk = *(const volatile u64 *)key;
	u16 port = 0, own = *(volatile u16 *)&c->port;
	u8 state = 0;
	if (*(volatile u64 *)&c->in >> MARK != mark)
		return 0;
	read_field(port, (struct sock___tcp *)sk, __sk_common.skc_dport);
	read_field(state, (struct sock___tcp *)sk, __sk_common.skc_state);
	// The programs run before the state changes: one that is closed has been left, unless they were left out.
	if (port != own || state == TCP_CLOSE) {
		if (over(c, sk, mark, ENDS_CLOSED))
			lose(LOST_ENDS);
		return 0;
	}
	account(c, sk, mark);
	return 0;
}

static long forget_listener(void *map, const struct listener *at, u64 *of, u64 *cgroup)
{
	if (*of == *cgroup)
		bpf_map_delete_elem(&listeners, at);
	return 0;
}

SEC("raw_tracepoint/tend")
int tend(u64 *ctx)
{
	u64 cgroup = ctx[1];
	struct target target = {.port = ctx[2]};
	struct key rest = {.cgroup = cgroup};
	u32 at;
	switch (ctx[0]) {
	case TEND_WATCH:
		return claim(&rest, &at, FROM_KEPT) && !bpf_map_update_elem(&targets, &cgroup, &target, BPF_ANY);
	case TEND_UNWATCH:
		bpf_for_each_map_elem(&listeners, forget_listener, &cgroup, 0);
		return !bpf_map_delete_elem(&targets, &cgroup);
	case TEND_OFFER:
		return offer(ctx[1]);
	case TEND_RETIRE:
		return retire(ctx[1]);
	case TEND_LOOK:
		bpf_for_each_map_elem(&conns, look_at, NULL, 0);
		return 1;
	}
	return 0;
}

#endif
