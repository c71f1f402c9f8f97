// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Counting a statement that has ended, and telling of it if it was slow or failed.
#ifndef PLIMSOLL_QUERY_COUNT_H
#define PLIMSOLL_QUERY_COUNT_H

#include "maps.h"
#include "text.h"

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

// outcome is what came of a statement.
struct outcome {
	u64 latency, queue, service, transfer, bytes;
};

// Statements of a container that are told one by one, of either kind: a thousand a second, and as many at once after a rest.
enum { TOLD_EACH_NS = 1000000, TOLD_AHEAD_NS = 999 * TOLD_EACH_NS, TOLD_TRIES = 4 };

// may_tell takes the next turn of a rate. Each turn is due one interval after the last one, or now if that is long ago; who would be too far ahead
// has none. CPUs that meet try again.
static __always_inline bool may_tell(u64 *due, u64 now)
{
	for (u32 i = 0; i < TOLD_TRIES; i++) {
		u64 last = *(volatile u64 *)due, next = last > now ? last : now;
		if (next - now > TOLD_AHEAD_NS)
			return false;
		if (__sync_val_compare_and_swap(due, last, next + TOLD_EACH_NS) == last)
			return true;
	}
	return false;
}

static __always_inline void describe(struct conn *c, struct record *r, struct key *key, struct outcome *o, u32 kind)
{
	r->kind = kind;
	r->pid = c->pid;
	r->key = *key;
	r->at_ns = c->now;
	r->latency_ns = o->latency;
	r->queue_ns = o->queue;
	r->service_ns = o->service;
	r->transfer_ns = o->transfer;
	r->rows = c->rows;
	r->bytes_in = o->bytes;
	r->bytes_out = c->out.bytes;
	r->text_size = r->text_whole = 0;
	__builtin_memcpy(r->client, c->client, sizeof(r->client));
	r->client_port = c->client_port;
	r->family = c->family;
	r->pad = 0;
}

// tell sends a statement to user space, with its text if that is still kept. Nobody is woken up, which costs 13 us: the reader comes by itself.
static __noinline int tell(struct conn *c, struct key *key, struct outcome *o, u32 kind, u32 text)
{
	u64 cgroup = c->cgroup;
	u32 pid = c->pid, size = 0;
	struct target *target = bpf_map_lookup_elem(&targets, &cgroup);
	if (!target || !may_tell(kind == RECORD_SLOW ? &target->slow_due : &target->failed_due, c->now)) {
		lose(LOST_SUPPRESSED);
		return 0;
	}
	struct literal *l = text ? bpf_map_lookup_elem(&literals, &pid) : NULL;
	if (l && l->number == text)
		size = l->size;
	else if (text)
		lose(LOST_LITERALS);
	if (l && size && size <= SHORT_TEXT) {
		struct short_record *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
		if (r) {
			describe(c, &r->record, key, o, kind);
			if (bounded(&size, SHORT_TEXT) && !bpf_probe_read_kernel(r->text, size, l->text)) {
				r->record.text_size = size;
				r->record.text_whole = l->whole;
			}
			bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
			return 1;
		}
	} else if (l && size) {
		struct long_record *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
		if (r) {
			describe(c, &r->record, key, o, kind);
			if (bounded(&size, LONG_TEXT) && !bpf_probe_read_kernel(r->text, size, l->text)) {
				r->record.text_size = size;
				r->record.text_whole = l->whole;
			}
			bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
			return 1;
		}
	} else {
		struct record *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
		if (r) {
			describe(c, r, key, o, kind);
			bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
			return 1;
		}
	}
	lose(LOST_RECORDS);
	return 0;
}

// count adds one statement that ended or has told its first rows (calls 1), or more rows of such a one (calls 0).
static __noinline int count(struct conn *c, struct unit *u, u64 bytes, u32 calls)
{
	u64 read_ns = u->read_ns;
	struct key key = {.cgroup = c->cgroup, .print = u->print, .who = c->who, .nth = c->nth, .code = c->code};
	struct counts *to = again(c, &key);
	if (!to)
		return 0;
	__sync_fetch_and_add(&to->rows, c->rows);
	__sync_fetch_and_add(&to->bytes_in, bytes);
	__sync_fetch_and_add(&to->bytes_out, c->out.bytes);
	if (!calls)
		return 0;
	__sync_fetch_and_add(&to->calls, 1);
	struct outcome o = {.bytes = bytes};
	if (read_ns) {
		u64 first = c->first_ns > read_ns ? c->first_ns : read_ns;
		u64 begun = c->done_ns > read_ns ? c->done_ns : read_ns;
		if (begun > first)
			begun = first;
		o.latency = c->now - read_ns;
		o.queue = begun - read_ns;
		o.service = first - begun;
		o.transfer = c->now - first;
		__sync_fetch_and_add(&to->latency_ns, o.latency);
		__sync_fetch_and_add(&to->queue_ns, o.queue);
		__sync_fetch_and_add(&to->service_ns, o.service);
		__sync_fetch_and_add(&to->transfer_ns, o.transfer);
		u32 slot = bucket(o.latency);
		if (slot < BUCKETS)
			__sync_fetch_and_add(&to->slots[slot], 1);
	}
	u32 kind = 0;
	if (c->slow_ns && o.latency >= c->slow_ns)
		kind = RECORD_SLOW;
	if (c->code && c->tells & TELL_FAILED)
		kind = RECORD_FAILED;
	if (kind)
		tell(c, &key, &o, kind, u->text);
	return 0;
}

#endif
