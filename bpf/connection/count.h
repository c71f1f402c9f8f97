// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Where a connection is counted, and taking over what its socket has counted.
#ifndef PLIMSOLL_CONNECTION_COUNT_H
#define PLIMSOLL_CONNECTION_COUNT_H

#include "maps.h"

// bucket of a round trip: bucket i holds what is more than 2^(i/4 - 17) s and not more than 2^((i+1)/4 - 17) s, as Prometheus' native histograms of
// schema 2 have it; the first holds all that is shorter and the last all that is longer.
static __always_inline u32 bucket(u64 ns)
{
	if (ns > 8000000000ULL)
		return BUCKETS - 1;
	// Units of 2^-34 s: the factor is 2^20 * 2^34 / 1e9, less 3e-8 of it, and so a bound belongs to the bucket below it.
	u64 units = (ns * 18014398) >> 20;
	if (units < 1 << LOWEST)
		return 0;
	u32 octave = 0;
	u64 rest = units;
#pragma unroll
	for (u32 shift = 32; shift; shift >>= 1)
		if (rest >> shift) {
			rest >>= shift;
			octave += shift;
		}
	// 2^(k/4) as mantissas of 16 bits.
	u32 mantissa = units >> (octave - 16);
	u32 at = (octave - LOWEST) * 4 + (mantissa >= 77936) + (mantissa >= 92682) + (mantissa >= 110218);
	return at < BUCKETS ? at : BUCKETS - 1;
}

// Where claim takes a place from.
enum { FROM_VACANT, FROM_KEPT };

static __always_inline bool take(u32 *at, const u32 from)
{
	if (from == FROM_KEPT && !bpf_map_pop_elem(&kept, at))
		return true;
	return !bpf_map_pop_elem(&vacant, at);
}

// claim finds the place of a key, or makes it, and says whether there is one. Two CPUs may miss the same key at once: BPF_NOEXIST lets one of them
// win, and the other gives its place back and takes the winner's.
static __always_inline bool claim(struct key *key, u32 *at, const u32 from)
{
	u32 *found = bpf_map_lookup_elem(&places, key);
	if (found) {
		*at = *found;
		return true;
	}
	u32 fresh = 0;
	if (!take(&fresh, from))
		return false;
	struct counts *c = bpf_map_lookup_elem(&counted, &fresh);
	if (!c)
		return false;
	c->key = *key;
	// An exchange orders what was written before it: who sees live sees the key.
	__sync_lock_test_and_set(&c->live, LIVE);
	*at = fresh;
	if (!bpf_map_update_elem(&places, key, &fresh, BPF_NOEXIST))
		return true;
	__sync_lock_test_and_set(&c->live, VACANT);
	bpf_map_push_elem(&vacant, &fresh, 0);
	found = bpf_map_lookup_elem(&places, key);
	if (found)
		*at = *found;
	return found != NULL;
}

// place finds the place of a key, or that of the rest of its cgroup, which got one when the cgroup began to be measured.
static __always_inline bool place(struct key *key, u32 *at)
{
	if (claim(key, at, FROM_VACANT))
		return true;
	struct key rest = {.cgroup = key->cgroup};
	u32 *found = bpf_map_lookup_elem(&places, &rest);
	lose(found ? LOST_CLIENTS : LOST_UNCOUNTED);
	if (found)
		*at = *found;
	return found != NULL;
}

// is_done says whether the client's FIN has come.
static __always_inline bool is_done(u64 sk)
{
	u64 flags = 0;
	read_field(flags, (struct sock___tcp *)sk, __sk_common.skc_flags);
	return flags >> SOCK_DONE & 1;
}

// sums of a socket. A FIN is counted as a byte received by the kernel, and not by us.
struct sums {
	u64 in, out;
	u32 again, srtt;
};

static __always_inline void sums_of(u64 sk, struct sums *s)
{
	u64 retransmitted = 0;
	read_field(s->in, (struct tcp_sock *)sk, bytes_received);
	read_field(s->out, (struct tcp_sock *)sk, bytes_sent);
	read_field(retransmitted, (struct tcp_sock *)sk, bytes_retrans);
	read_field(s->again, (struct tcp_sock *)sk, total_retrans);
	read_field(s->srtt, (struct tcp_sock *)sk, srtt_us);
	if (s->in && is_done(sk))
		s->in--;
	s->out -= retransmitted;
}

static __always_inline u64 marked(u64 sum, u64 mark)
{
	return (sum & ((1ULL << MARK) - 1)) | mark << MARK;
}

// advance takes a sum over, and says how much is new. Of two that do so at once each adds what is new to it, and no sum goes back; who comes
// when the connection is over adds nothing.
static __always_inline u64 advance(u64 *sum, u64 now, u64 mark)
{
	now = marked(now, mark);
	for (u32 i = 0; i < 3; i++) { // only a look and an end can meet
		u64 old = *(volatile u64 *)sum;
		if (old >> MARK != mark || now <= old)
			return 0;
		if (__sync_val_compare_and_swap(sum, old, now) == old)
			return now - old;
	}
	return 0;
}

// account takes over what a socket has counted since the last time. A connection that has spoken since then tells its round trip.
static __always_inline void account(struct conn *c, u64 sk, u64 mark)
{
	u32 at = c->place;
	struct counts *to = bpf_map_lookup_elem(&counted, &at);
	struct sums s = {};
	if (!to)
		return;
	sums_of(sk, &s);
	u64 in = advance(&c->in, s.in, mark), out = advance(&c->out, s.out, mark), again = advance(&c->again, s.again, mark);
	if (again)
		__sync_fetch_and_add(&to->retransmits, again);
	if (!in && !out)
		return;
	__sync_fetch_and_add(&to->bytes_in, in);
	__sync_fetch_and_add(&to->bytes_out, out);
	if (!s.srtt)
		return;
	u64 ns = (u64)s.srtt * 125;
	u32 slot = bucket(ns);
	__sync_fetch_and_add(&to->round_trip_ns, ns);
	if (slot < BUCKETS)
		__sync_fetch_and_add(&to->slots[slot], 1);
}

#endif
