// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the server says.
#ifndef PLIMSOLL_QUERY_ANSWER_H
#define PLIMSOLL_QUERY_ANSWER_H

#include "request.h"

#define KIND(k) (1 << (k))
// What the server really answers: a stray end of a copy, and a Sync that a copy swallowed, are passed over.
#define ANSWERED (~(KIND(UNIT_COPIED) | KIND(UNIT_DROPPED)))

// first copies the unit that the next answer belongs to and says whether there is one.
static __always_inline bool first(struct conn *c, struct unit *u)
{
	if (c->head == c->tail)
		return false;
	peek(c, c->head, u);
	if (u->kind != UNIT_COPIED && u->kind != UNIT_DROPPED)
		return true;
	if (!pop_until(c, ANSWERED))
		return false;
	peek(c, c->head, u);
	return true;
}

// runs says whether a unit is an Execute, or may be one.
static __always_inline bool runs(struct unit *u)
{
	return u->kind == UNIT_EXECUTE || u->kind == UNIT_RESUMED || u->kind == UNIT_UNKNOWN;
}

static __always_inline int answer_begin(struct conn *c)
{
	c->out.sub = 0;
	switch (c->out.type) {
	case 'C':
		c->rows = 0;
		return FIELD_TAG;
	case 'E':
		c->code = c->fatal = 0;
		return FIELD_ERROR;
	case 'D':
		c->seen_rows++;
		break;
	case 'Z': case 'S': case 'A': case 'N': case 'R': case 'K': case 'v':
		return FIELD_SKIP; // no part of a statement's answer
	}
	if (!c->first_ns)
		c->first_ns = c->now;
	return FIELD_SKIP;
}

static __always_inline bool known_answer(u8 type)
{
	switch (type) {
	case '1': case '2': case '3': case 'A': case 'C': case 'D': case 'E': case 'G': case 'H': case 'I': case 'K': case 'N': case 'R': case 'S':
	case 'T': case 'V': case 'W': case 'Z': case 'c': case 'd': case 'n': case 's': case 't': case 'v':
		return true;
	}
	return false;
}

static __noinline int answer_byte(struct conn *c, u8 b)
{
	switch (c->out.field) {
	case FIELD_TAG: // "INSERT 0 5": the last number is the rows; "CREATE TABLE" has none
		if (b == ' ')
			c->rows = 0;
		else if (is_digit(b))
			c->rows = c->rows * 10 + (b - '0');
		return 0;
	case FIELD_ERROR:
		c->out.sub = 0;
		c->out.field = b == 'C' ? FIELD_SQLSTATE : b == 'V' ? FIELD_SEVERITY : b ? FIELD_OTHER : FIELD_SKIP;
		return 0;
	case FIELD_SQLSTATE: // five digits and capitals
		if (b)
			c->code = c->code * 36 + (is_digit(b) ? b - '0' : b - 'A' + 10);
		break;
	case FIELD_SEVERITY:
		if (c->out.sub == 0)
			c->fatal = b == 'F' || b == 'P';
		c->out.sub = 1;
		break;
	}
	if (!b)
		c->out.field = FIELD_ERROR;
	return 0;
}

// answer_some takes bytes of a body, a few in one round.
static __noinline int answer_some(struct conn *c)
{
	for (u32 k = 0; k < ROUND; k++) {
		u32 at = c->off - c->base;
		if (at >= c->filled || !c->out.left || c->out.field == FIELD_SKIP)
			return 0;
		u8 b = seen(c, at);
		c->off++;
		c->out.left--;
		c->out.bytes++;
		answer_byte(c, b);
	}
	return 0;
}

// completed counts a statement that ended well.
static __always_inline void completed(struct conn *c)
{
	struct unit u = {};
	bool some = first(c, &u);
	c->code = 0;
	if (some && u.kind == UNIT_QUERY) {
		count(c, &u, c->counted ? c->copied : u.bytes + c->copied, 1);
		c->counted = 1;
		c->nth++;
	} else if (some && runs(&u)) {
		count(c, &u, u.bytes + c->copied, u.kind != UNIT_RESUMED);
		pop(c);
	} else {
		struct unit none = {}; // nobody saw it asked for
		count(c, &none, 0, 1);
	}
	c->copied = 0;
	ended(c);
}

// failed counts an error, and leaves what the server will step over.
static __noinline int failed(struct conn *c)
{
	struct unit u = {};
	bool some = first(c, &u);
	c->rows = c->seen_rows;
	c->wanted = 0; // what the server passes over it does not report
	if (!c->code)
		c->code = 1; // an error without SQLSTATE is one all the same
	if (!some) {
		// Either of a message that has no unit (Bind, Describe, Close), or of the connection itself.
		struct unit none = {.print = c->open ? c->subject : 0};
		count(c, &none, 0, 1);
		c->skipping = c->open;
	} else {
		count(c, &u, c->counted ? 0 : u.bytes, 1);
		if (u.kind != UNIT_QUERY && u.kind != UNIT_CALL && u.kind != UNIT_SYNC) {
			pop(c);
			c->skipping = !pop_until(c, KIND(UNIT_SYNC));
		}
		c->counted = 1;
	}
	c->copied = 0;
	c->copying = 0;
	if (c->fatal)
		pop_until(c, 0); // the server ends here
	ended(c);
	return 0;
}

// copy_begun: the server reads copy data from here on and steps over Sync until the data end. What of that was read already is in the FIFO.
static __noinline int copy_begun(struct conn *c)
{
	struct unit u = {};
	if (!first(c, &u))
		return 0;
	c->copying = 1;
	for (u32 i = 1; i < FIFO; i++) {
		u32 seq = c->head + i;
		if (seq == c->tail)
			return 0;
		struct unit *next = &c->units[seq % FIFO];
		if (next->seq != seq)
			return 0;
		u32 kind = next->kind;
		if (kind != UNIT_SYNC && kind != UNIT_COPIED)
			return 0;
		next->kind = UNIT_DROPPED;
		if (kind == UNIT_COPIED) {
			c->copied = next->bytes;
			c->copying = 0;
			return 0;
		}
	}
	return 0;
}

static __noinline int ready(struct conn *c)
{
	if (pop_until(c, KIND(UNIT_SYNC) | KIND(UNIT_QUERY) | KIND(UNIT_CALL) | KIND(UNIT_UNKNOWN)))
		pop(c);
	c->nth = 0;
	c->counted = 0;
	c->copying = 0;
	c->first_ns = 0;
	c->done_ns = c->now;
	c->rows = c->seen_rows = 0;
	c->out.bytes = 0; // greetings and ReadyForQuery belong to no statement
	return 0;
}

static __noinline int answer_end(struct conn *c)
{
	struct unit u = {};
	if (c->phase == PHASE_LOGIN) {
		if (c->out.type != 'Z') // a refusal among them: who was not let in has said no statement
			return 0;
		identify(c);
		c->phase = PHASE_READY;
	}
	switch (c->out.type) {
	case 'C':
		completed(c);
		return 0;
	case 'E':
		failed(c);
		return 0;
	case 'Z':
		ready(c);
		return 0;
	case 'G':
		copy_begun(c);
		return 0;
	case 'W': // replication
		c->phase = PHASE_OTHER;
		return 0;
	case '1':
		if (first(c, &u) && (u.kind == UNIT_PARSE || u.kind == UNIT_UNKNOWN))
			pop(c);
		return 0;
	case 's': // as many rows as were asked for: the client may go on with another Execute of the portal, or has enough
		if (first(c, &u) && runs(&u)) {
			c->rows = c->seen_rows;
			c->code = 0;
			count(c, &u, u.bytes, u.kind != UNIT_RESUMED);
			pop(c);
			ended(c);
		}
		return 0;
	case 'I': // an empty text is no statement
		if (first(c, &u) && runs(&u)) {
			pop(c);
			ended(c);
		}
		return 0;
	}
	return 0;
}

static long answer_step(u32 i, struct scan *ctx)
{
	struct conn *c = ctx->c;
	if (c->off >= c->size || !follows(c))
		return 1;
	if (c->out.have < 5) {
		u32 took = head(c, &c->out);
		if (!took)
			return 1;
		c->out.bytes += took;
		if (c->out.have < 5)
			return 0;
		if (c->out.length < 4 || c->out.length > MESSAGE_MOST || !known_answer(c->out.type)) {
			lose(LOST_FRAMING);
			resync(c);
			return 1;
		}
		c->out.left = c->out.length - 4;
		c->out.field = answer_begin(c);
	}
	if (c->out.field != FIELD_SKIP && c->out.left && c->off < c->size) {
		if (look(c) >= WINDOW)
			return 1;
		answer_some(c);
	}
	if (c->out.field == FIELD_SKIP && c->out.left)
		c->out.bytes += skip(c, &c->out);
	if (c->out.left == 0) {
		answer_end(c);
		c->out.have = 0;
	}
	return 0;
}

#endif
