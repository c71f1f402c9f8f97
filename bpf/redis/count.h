// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Counting a command that has ended, and telling of it if it was slow or failed. Bounds, places and histograms are those of bpf/query.
#ifndef PLIMSOLL_REDIS_COUNT_H
#define PLIMSOLL_REDIS_COUNT_H

#include "maps.h"

// 2^(k/8) as mantissas of 16 bits: the bounds of the eight buckets of an octave, as Prometheus' native histograms of schema 3 have them.
const u32 bounds[8] = {65536, 71468, 77936, 84990, 92682, 101070, 110218, 120194};

// bucket of a duration: bucket i holds what is more than 2^(i/8 - 20) s and not more than 2^((i+1)/8 - 20) s; the first holds all that is
// shorter and the last all that is longer.
static __always_inline u32 bucket(u64 ns)
{
	if (ns > 68000000000ULL) // beyond 2^6 s, and the product below would not fit
		return BUCKETS - 1;
	// Units of 2^-34 s: the factor is 2^20 * 2^34 / 1e9, less 3e-8 of it, and so a bound belongs to the bucket below it.
	u64 units = (ns * 18014398) >> 20;
	if (units < 1 << 14)
		return 0;
	u32 octave = 0;
	u64 rest = units;
#pragma unroll
	for (u32 shift = 32; shift; shift >>= 1)
		if (rest >> shift) {
			rest >>= shift;
			octave += shift;
		}
	u32 mantissa = octave > 16 ? units >> (octave - 16) : units << (16 - octave);
	u32 sub = mantissa >= bounds[4] ? 4 : 0;
	sub += mantissa >= bounds[(sub + 2) & 7] ? 2 : 0;
	sub += mantissa >= bounds[(sub + 1) & 7] ? 1 : 0;
	u32 at = (octave - 14) * 8 + sub;
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

// claim finds the counts of a key, or makes them. Two CPUs may miss the same key at once: BPF_NOEXIST lets one of them win, and the other
// gives its place back and takes the winner's.
static __always_inline struct counts *claim(struct key *key, u32 *at, const u32 from)
{
	u32 *found = bpf_map_lookup_elem(&places, key);
	if (found) {
		*at = *found;
		return bpf_map_lookup_elem(&counted, found);
	}
	u32 fresh = 0;
	if (take(&fresh, from)) {
		struct counts *c = bpf_map_lookup_elem(&counted, &fresh);
		if (!c)
			return NULL;
		c->key = *key;
		// An exchange orders what was written before it: who sees live sees the key.
		__sync_lock_test_and_set(&c->live, LIVE);
		*at = fresh;
		if (!bpf_map_update_elem(&places, key, &fresh, BPF_NOEXIST))
			return c;
		__sync_lock_test_and_set(&c->live, VACANT);
		bpf_map_push_elem(&vacant, &fresh, 0);
		found = bpf_map_lookup_elem(&places, key);
		if (found) {
			*at = *found;
			return bpf_map_lookup_elem(&counted, found);
		}
	}
	return NULL;
}

// place finds the counts of a key, or those of the rest of its cgroup, which got a place when the cgroup began to be measured.
static __always_inline struct counts *place(struct conn *c, struct key *key)
{
	struct counts *own = claim(key, &c->last_place, FROM_VACANT);
	if (own)
		return own;
	struct key rest = {.cgroup = key->cgroup, .code = key->code ? 1 : 0};
	u32 *found = bpf_map_lookup_elem(&places, &rest);
	lose(found ? LOST_KEYS : LOST_UNCOUNTED);
	return found ? bpf_map_lookup_elem(&counted, found) : NULL;
}

// again finds the place of the key that this connection counted last without looking for it, as long as the key has it: a place is taken back
// only when no program is left that may have seen it.
static __always_inline struct counts *again(struct conn *c, struct key *key)
{
	u32 at = c->last_place;
	struct counts *last = bpf_map_lookup_elem(&counted, &at);
	if (last && last->live == LIVE && last->key.print == key->print && last->key.who == key->who && last->key.cgroup == key->cgroup &&
	    last->key.nth == key->nth && last->key.code == key->code)
		return last;
	return place(c, key);
}

struct timing {
	u64 latency, queue, service, transfer;
};

static __always_inline void tell(struct conn *c, u64 print, u32 code, u64 latency, u32 kind, u64 bytes)
{
	struct record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		lose(LOST_RECORDS);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->pid = c->pid;
	r->key.cgroup = c->cgroup;
	r->key.print = print;
	r->key.who = c->who;
	r->key.code = code;
	r->at_ns = c->now;
	r->latency_ns = latency;
	r->bytes_in = bytes;
	r->bytes_out = c->out.bytes;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP); // a wake-up costs 13 us; the reader comes by itself
}

// flush adds the batch at hand to its counts.
__noinline int flush(struct conn *c)
{
	if (!c)
		return 0;
	struct batch *b = &c->batch;
	if (!b->calls)
		return 0;
	struct key key = {.cgroup = c->cgroup, .print = b->print, .who = b->who, .code = b->code};
	struct counts *to = again(c, &key);
	u64 calls = b->calls, timed = b->timed, each = b->each;
	b->calls = 0;
	b->timed = 0;
	if (!to)
		return 0;
	__sync_fetch_and_add(&to->calls, calls);
	__sync_fetch_and_add(&to->bytes_in, b->bytes_in);
	__sync_fetch_and_add(&to->bytes_out, b->bytes_out);
	if (!timed)
		return 0;
	__sync_fetch_and_add(&to->latency_ns, timed * each);
	if (b->queue)
		__sync_fetch_and_add(&to->queue_ns, b->queue);
	__sync_fetch_and_add(&to->service_ns, b->service);
	if (b->transfer)
		__sync_fetch_and_add(&to->transfer_ns, b->transfer);
	u32 slot = bucket(each);
	if (slot < BUCKETS)
		__sync_fetch_and_add(&to->slots[slot], timed);
	return 0;
}

// count adds a command that ended, of which nothing of its time is known if read_ns is 0. Commands that are alike, were read at once and are answered
// at once are gathered first.
__noinline int count(struct conn *c, u64 print, u64 read_ns, u64 bytes, u32 code)
{
	if (!c)
		return 0;
	struct batch *b = &c->batch;
	struct timing t = {};
	if (read_ns) {
		u64 first = c->first_ns > read_ns ? c->first_ns : read_ns;
		u64 begun = c->done_ns > read_ns ? c->done_ns : read_ns;
		if (begun > first)
			begun = first;
		t.latency = c->now - read_ns;
		t.queue = begun - read_ns;
		t.service = first - begun;
		t.transfer = c->now - first;
	}
	if (b->calls && (b->print != print || b->who != c->who || b->code != code || (b->timed && read_ns && b->each != t.latency)))
		flush(c);
	if (!b->calls) {
		b->print = print;
		b->who = c->who;
		b->code = code;
		b->bytes_in = b->bytes_out = b->queue = b->service = b->transfer = b->each = 0;
	}
	b->calls++;
	b->bytes_in += bytes;
	b->bytes_out += c->out.bytes;
	if (read_ns) {
		b->timed++;
		b->each = t.latency;
		b->queue += t.queue;
		b->service += t.service;
		b->transfer += t.transfer;
	}
	if (!c->slow_ns)
		return 0;
	if (code)
		tell(c, print, code, t.latency, RECORD_FAILED, bytes);
	else if (t.latency >= c->slow_ns)
		tell(c, print, 0, t.latency, RECORD_SLOW, bytes);
	return 0;
}

#endif
