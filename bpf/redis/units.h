// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The FIFO of what a client asked for and the server has not answered: it answers in order, so the head is what an answer belongs to. Commands that are
// alike and were read at once are one unit, so that a deep pipeline of one command takes no more than a shallow one.
#ifndef PLIMSOLL_REDIS_UNITS_H
#define PLIMSOLL_REDIS_UNITS_H

#include "count.h"

// resync gives a stream up until a command begins after an answer.
static __always_inline void resync(struct conn *c)
{
	c->phase = PHASE_UNSYNCED;
	c->answered = 0;
}

static __always_inline void spill_of(struct conn *c, struct spill_key *key, u32 which, u32 seq)
{
	key->born = c->born;
	key->pid = c->pid;
	key->fd = c->fd;
	key->which = which;
	key->seq = seq;
}

// alike says whether a command joins the run at the end of the FIFO.
static __always_inline bool alike(struct unit *last, struct unit *u, u32 seq)
{
	return last->seq == seq && last->n && last->print == u->print && last->read_ns == u->read_ns && last->command == u->command &&
	       u->kind == COMMAND_PLAIN && last->kind == COMMAND_PLAIN;
}

// overflow puts a command that finds no room to the last one that did, as one more of which nothing is known: all that the server answers is counted. What
// a command that changes its connection would have changed is lost, and so the stream is.
static __always_inline int overflow(struct conn *c, struct unit *u, u32 which)
{
	struct spill_key key;
	lose(LOST_UNITS);
	spill_of(c, &key, which, c->tail[which] - 1);
	struct unit *last = bpf_map_lookup_elem(&spill, &key);
	if (!last || u->kind != COMMAND_PLAIN || last->kind != COMMAND_PLAIN) {
		resync(c);
		return 0;
	}
	last->more++;
	last->bytes += u->bytes;
	return 0;
}

__noinline int push(struct conn *c, struct unit *u, u32 which)
{
	if (!c || !u)
		return 0;
	which &= 1;
	u32 seq = c->tail[which], depth = seq - c->head[which];
	struct unit *last = &c->units[which][(seq - 1) % FIFO];
	if (depth && alike(last, u, seq - 1)) {
		last->n++;
		last->bytes += u->bytes;
		return 0;
	}
	u->seq = seq;
	u->n = 1;
	if (depth < FIFO) {
		c->units[which][seq % FIFO] = *u;
		c->tail[which] = seq + 1;
		return 0;
	}
	struct spill_key key;
	if (depth >= PIPELINE)
		return overflow(c, u, which);
	spill_of(c, &key, which, seq);
	if (bpf_map_update_elem(&spill, &key, u, BPF_ANY))
		return overflow(c, u, which);
	c->tail[which] = seq + 1;
	return 0;
}

static __always_inline bool is_empty(struct conn *c, u32 which)
{
	return c->head[which & 1] == c->tail[which & 1];
}

// peek copies the command that is next, and says whether there is one.
static __always_inline bool peek(struct conn *c, struct unit *u, u32 which)
{
	which &= 1;
	if (is_empty(c, which))
		return false;
	u32 seq = c->head[which];
	*u = c->units[which][seq % FIFO];
	if (u->seq == seq && u->n)
		return true;
	struct spill_key key;
	spill_of(c, &key, which, seq);
	struct unit *far = bpf_map_lookup_elem(&spill, &key);
	if (!far)
		return false;
	*u = *far;
	return true;
}

// pop takes the next command and says whether there was one. Of a run it takes one, with its part of the bytes.
__noinline int pop(struct conn *c, struct unit *to, u32 which)
{
	if (!c || !to)
		return 0;
	which &= 1;
	if (is_empty(c, which))
		return 0;
	u32 seq = c->head[which];
	struct unit *u = &c->units[which][seq % FIFO];
	if (u->seq == seq && u->n) {
		*to = *u;
		to->bytes = u->n > 1 ? u->bytes / u->n : u->bytes;
		u->bytes -= to->bytes;
		if (!--u->n)
			c->head[which] = seq + 1;
		return 1;
	}
	struct spill_key key;
	spill_of(c, &key, which, seq);
	struct unit *far = bpf_map_lookup_elem(&spill, &key);
	if (!far) {
		c->head[which] = seq + 1;
		return 0;
	}
	*to = *far;
	if (far->n) { // that it found room for
		far->n = 0;
	} else {
		far->more--;
		to->print = to->read_ns = 0;
	}
	to->bytes = far->bytes / (far->more + 1);
	far->bytes -= to->bytes;
	if (far->more)
		return 1;
	c->head[which] = seq + 1;
	bpf_map_delete_elem(&spill, &key);
	return 1;
}

struct clearing {
	struct conn *c;
	u32 which;
};

static long clear_step(u32 i, struct clearing *s)
{
	struct conn *c = s->c;
	u32 which = s->which & 1;
	if (is_empty(c, which))
		return 1;
	u32 seq = c->head[which]++;
	struct unit *u = &c->units[which][seq % FIFO];
	if (u->seq == seq && u->n) {
		u->n = 0;
		return 0;
	}
	struct spill_key key;
	spill_of(c, &key, which, seq);
	bpf_map_delete_elem(&spill, &key);
	return 0;
}

__noinline int clear(struct conn *c, u32 which)
{
	if (!c)
		return 0;
	struct clearing s = {.c = c, .which = which};
	if (!is_empty(c, which))
		bpf_loop(PIPELINE, clear_step, &s, 0);
	return 0;
}

#endif
