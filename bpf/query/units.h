// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The FIFO of what a client asked for and the server has not answered: it answers in order, so the head is what an answer belongs to.
#ifndef PLIMSOLL_QUERY_UNITS_H
#define PLIMSOLL_QUERY_UNITS_H

#include "count.h"

// let_go makes the scrap of a connection free again.
static __always_inline void let_go(struct conn *c)
{
	u32 where = c->pid % SCRAPS;
	struct scrap *s = bpf_map_lookup_elem(&scraps, &where);
	if (s && s->owner == c->pid)
		__sync_lock_test_and_set(&s->owner, 0);
}

// follows says whether messages are framed in both directions.
static __always_inline bool follows(struct conn *c)
{
	return c->phase == PHASE_READY || c->phase == PHASE_LOGIN;
}

// resync gives a stream up until the next answer ends.
static __always_inline void resync(struct conn *c)
{
	c->phase = PHASE_UNSYNCED;
	c->in.have = c->out.have = 0;
	c->in.left = c->out.left = 0;
	let_go(c);
}

static __always_inline void push(struct conn *c, u32 kind, u64 print, u32 text)
{
	if (c->tail - c->head >= PIPELINE) {
		lose(LOST_UNITS);
		resync(c);
		return;
	}
	struct unit u = {.print = print, .read_ns = c->now, .bytes = c->in.bytes, .seq = c->tail, .kind = kind, .text = text};
	if (kind != UNIT_PARSE) // what is parsed is sent to be executed
		c->in.bytes = 0;
	if (c->tail - c->head < FIFO) {
		c->units[c->tail % FIFO] = u;
	} else {
		struct spill_key key = {.born = c->born, .pid = c->pid, .seq = c->tail};
		// A unit that found no room is found as UNIT_UNKNOWN, and fits whatever is answered.
		if (bpf_map_update_elem(&spill, &key, &u, BPF_ANY))
			lose(LOST_UNITS);
	}
	c->tail++;
}

// peek copies the unit with this number.
static __always_inline void peek(struct conn *c, u32 seq, struct unit *u)
{
	*u = c->units[seq % FIFO];
	if (u->seq == seq)
		return;
	struct spill_key key = {.born = c->born, .pid = c->pid, .seq = seq};
	struct unit *far = bpf_map_lookup_elem(&spill, &key);
	if (far) {
		*u = *far;
		return;
	}
	u->kind = UNIT_UNKNOWN;
	u->text = 0;
	u->print = u->read_ns = u->bytes = 0;
	u->seq = seq;
}

static __always_inline void pop(struct conn *c)
{
	u32 seq = c->head++;
	if (c->units[seq % FIFO].seq == seq)
		return;
	struct spill_key key = {.born = c->born, .pid = c->pid, .seq = seq};
	bpf_map_delete_elem(&spill, &key);
}

// ended begins the account of the next unit.
static __always_inline void ended(struct conn *c)
{
	c->done_ns = c->now;
	c->first_ns = 0;
	c->rows = c->seen_rows = 0;
	c->code = 0;
	c->out.bytes = 0;
}

struct search {
	struct conn *c;
	u32 until; // a set of kinds, as bits
	u32 found;
};

static long search_step(u32 i, struct search *s)
{
	struct conn *c = s->c;
	if (c->head == c->tail)
		return 1;
	struct unit u;
	peek(c, c->head, &u);
	if (s->until & (1 << (u.kind & 31))) {
		s->found = 1;
		return 1;
	}
	pop(c);
	return 0;
}

// pop_until leaves the next unit of one of these kinds at the head, or nothing, and says which.
static __noinline int pop_until(struct conn *c, u32 until)
{
	struct search s = {.c = c, .until = until};
	bpf_loop(PIPELINE, search_step, &s, 0);
	return s.found;
}

#endif
