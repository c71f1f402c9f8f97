// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The begin and the end of a connection.
#ifndef PLIMSOLL_CONNECTION_LIFE_H
#define PLIMSOLL_CONNECTION_LIFE_H

#include "count.h"

// How a connection ends.
enum ends { ENDS_CLOSED, ENDS_RESET, ENDS_TIMED_OUT };

// cause of the end of a connection that was in this state: what its socket was told, or that no FIN was sent. After the client's FIN a reset is no
// failure: a client that has closed answers so to what TLS says last.
static __always_inline u32 cause(u64 sk, u32 from)
{
	s32 err = 0;
	read_field(err, (struct sock___tcp *)sk, sk_err);
	if (err == ETIMEDOUT)
		return ENDS_TIMED_OUT;
	if (is_done(sk))
		return ENDS_CLOSED;
	return err == ECONNRESET || from == TCP_ESTABLISHED ? ENDS_RESET : ENDS_CLOSED;
}

// is_served says whether a socket is one of a measured server's, to a client of it, and whose.
static __always_inline bool is_served(u64 sk, struct key *key)
{
	struct cgroup *cgroup = NULL;
	struct kernfs_node *node = NULL;
	u16 port = 0;
	read_field(cgroup, (struct sock___tcp *)sk, sk_cgrp_data.cgroup);
	read_field(node, cgroup, kn);
	read_field(key->cgroup, node, id);
	struct target *target = bpf_map_lookup_elem(&targets, &key->cgroup);
	if (!target)
		return false;
	read_field(port, (struct sock___tcp *)sk, __sk_common.skc_num);
	return port == target->port;
}

// listens remembers where a measured server does.
static __noinline int listens(u64 sk)
{
	struct key key = {};
	struct listener at = {};
	if (!is_served(sk, &key))
		return 0;
	read_field(at.network, (struct sock___tcp *)sk, __sk_common.skc_net.net);
	read_field(at.port, (struct sock___tcp *)sk, __sk_common.skc_num);
	if (bpf_map_update_elem(&listeners, &at, &key.cgroup, BPF_ANY))
		lose(LOST_LISTENERS);
	return 0;
}

// map_into makes an address of IPv4 one of IPv6.
static __always_inline void map_into(struct key *key, u32 address)
{
	key->client.bytes[10] = key->client.bytes[11] = 0xff;
	__builtin_memcpy(key->client.bytes + 12, &address, sizeof(address));
}

static __always_inline void client_of(u64 sk, struct key *key)
{
	u16 family = 0;
	read_field(family, (struct sock___tcp *)sk, __sk_common.skc_family);
	if (family == AF_INET6) {
		read_field(key->client, (struct sock___tcp *)sk, __sk_common.skc_v6_daddr);
		return;
	}
	u32 address = 0;
	read_field(address, (struct sock___tcp *)sk, __sk_common.skc_daddr);
	map_into(key, address);
}

static __always_inline void end(u32 at, u32 how)
{
	struct counts *to = bpf_map_lookup_elem(&counted, &at);
	if (to)
		__sync_fetch_and_add(how == ENDS_RESET ? &to->reset : how == ENDS_TIMED_OUT ? &to->timed_out : &to->closed, 1);
}

// over ends a connection that has this mark, and says whether it did: whoever takes the mark away ends it, and nobody else. After that, who looks at
// it does not take what the next socket here counts for this one's.
static __always_inline bool over(struct conn *c, u64 sk, u64 mark, u32 how)
{
	u32 at = c->place;
	for (u32 i = 0; i < 3; i++) {
		u64 old = *(volatile u64 *)&c->in;
		if (old >> MARK != mark || mark == OVER)
			return false;
		if (__sync_val_compare_and_swap(&c->in, old, (u64)OVER << MARK) != old)
			continue;
		c->out = c->again = (u64)OVER << MARK;
		bpf_map_delete_elem(&conns, &sk);
		end(at, how);
		return true;
	}
	return false;
}

// meet begins to count a connection. One that was there before is counted from now on.
static __noinline int meet(u64 sk, bool before)
{
	struct key key = {};
	struct conn c = {};
	if (!is_served(sk, &key))
		return 0;
	client_of(sk, &key);
	if (!place(&key, &c.place))
		return 0;
	u64 mark = __sync_fetch_and_add(&births, 1) % OVER;
	struct sums s = {};
	if (before)
		sums_of(sk, &s);
	c.in = marked(s.in, mark);
	c.out = marked(s.out, mark);
	c.again = marked(s.again, mark);
	read_field(c.port, (struct sock___tcp *)sk, __sk_common.skc_dport);
	struct conn *stale = before ? NULL : bpf_map_lookup_elem(&conns, &sk);
	if (stale && over(stale, sk, stale->in >> MARK, ENDS_CLOSED))
		lose(LOST_ENDS);
	long failed = bpf_map_update_elem(&conns, &sk, &c, BPF_NOEXIST);
	if (failed) {
		if (failed != -EEXIST)
			lose(LOST_CONNECTIONS);
		return 0;
	}
	u32 at = c.place;
	struct counts *to = bpf_map_lookup_elem(&counted, &at);
	if (to)
		__sync_fetch_and_add(before ? &to->found : &to->opened, 1);
	return 0;
}

// leave counts the end of a connection that was in this state.
static __noinline int leave(u64 sk, u32 from)
{
	struct conn *c = bpf_map_lookup_elem(&conns, &sk);
	if (!c)
		return 0;
	u64 mark = c->in >> MARK;
	account(c, sk, mark);
	over(c, sk, mark, cause(sk, from));
	return 0;
}

// unknown tells of a connection of a measured server that ends and was never met.
static __noinline int unknown(u64 sk)
{
	struct key key = {};
	if (is_served(sk, &key))
		lose(LOST_BEGINS);
	return 0;
}

#endif
