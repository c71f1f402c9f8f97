// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the server says, in RESP2 and RESP3. An answer is a tree of elements; how many are still to come is all that is kept of where in it we are.
#ifndef PLIMSOLL_REDIS_ANSWER_H
#define PLIMSOLL_REDIS_ANSWER_H

#include "request.h"

enum { ANSWER_START, ANSWER_LINE, ANSWER_LENGTH, ANSWER_BODY, ANSWER_COUNT, ANSWER_NAME };

// What is known of the first word of a frame that may be pushed.
enum { READS_NOTHING, READS_NEXT, READS_DONE };

#define WORD_QUEUED 0xe301fa59ce7f98f4ULL
enum { CODE_OTHER = 1 }; // of an error whose first word nobody knows

// succeeded takes note of what a command does to its connection.
static __always_inline int succeeded(struct conn *c, struct unit *u)
{
	switch (u->kind) {
	case COMMAND_SELECT:
		c->session.database = u->arg;
		identify(c);
		return 0;
	case COMMAND_HELLO:
		if (u->arg & 0xff)
			c->resp3 = (u->arg & 0xff) >= 3;
		if (!(u->arg & ASKS_USER))
			return 0;
		__builtin_memcpy(c->session.user, c->asks_user, USER);
		identify(c);
		return 0;
	case COMMAND_AUTH:
		__builtin_memcpy(c->session.user, c->asks_user, USER);
		identify(c);
		return 0;
	case COMMAND_RESET:
		c->subscribed = c->resp3 = 0;
		clear(c, QUEUED);
		default_user(c);
		return 0;
	case COMMAND_MONITOR:
		c->phase = PHASE_OTHER;
		return 0;
	case COMMAND_DISCARD:
		clear(c, QUEUED);
		return 0;
	}
	return 0;
}

// ended begins the account of the next command.
static __always_inline void ended(struct conn *c)
{
	c->done_ns = c->now;
	c->first_ns = 0;
	c->out.bytes = 0;
}

// is_pushed says whether a frame is none that a command waits for; if it confirms a subscription, it ends the command that asked for that.
static __always_inline bool is_pushed(struct conn *c)
{
	struct unit u = {};
	if (c->out.reads == READS_DONE) {
		struct command *m = bpf_map_lookup_elem(&commands, &c->out.word);
		u32 kind = m ? m->kind : COMMAND_PLAIN;
		if (kind == COMMAND_MESSAGE)
			return true;
		if (kind == COMMAND_SUBSCRIBE)
			return !peek(c, &u, ASKED) || u.kind != COMMAND_SUBSCRIBE;
	}
	return c->out.top == '>';
}

// frame_end counts the command that an answer belongs to. The verifier allows eight frames of calls, so that what could be functions of their own is here.
__noinline int frame_end(struct conn *c)
{
	if (!c)
		return 0;
	struct answer *a = &c->out;
	struct unit u = {};
	u32 code = a->code;
	bool member = a->inside && a->members;
	if (!a->inside && is_pushed(c)) {
		a->bytes = 0;
		if (is_empty(c, ASKED))
			c->first_ns = 0;
		return 0;
	}
	a->code = 0;
	u32 known = pop(c, &u, member ? QUEUED : ASKED);
	if (known && !member && a->top == '+' && a->word == WORD_QUEUED && !a->inside) {
		u.read_ns = 0; // its wait will be EXEC's
		push(c, &u, QUEUED);
		ended(c);
		return 0;
	}
	if (!known && !code && !member) { // nobody asked
		broken(c);
		return 0;
	}
	count(c, u.print, member ? 0 : u.read_ns, u.bytes, code); // an error that nobody asked for is one of the connection itself
	if (u.kind != COMMAND_PLAIN)
		flush(c);
	if (u.kind == COMMAND_EXEC)
		clear(c, QUEUED);
	if (known && !code)
		succeeded(c, &u);
	if (!member) {
		a->inside = 0;
		ended(c);
		return 0;
	}
	a->bytes = 0;
	a->members--;
	return 0;
}

// element_end ends an element, and with the last one the answer; with the last answer within EXEC's, that.
static __always_inline void element_end(struct conn *c)
{
	struct answer *a = &c->out;
	a->state = ANSWER_START;
	if (--a->pending)
		return;
	bool member = a->inside;
	frame_end(c);
	if (member && a->inside && !a->members)
		frame_end(c);
}

// elements goes into an array, a set, a map, a push, or the attributes of what follows, and says whether that ends here.
__noinline int elements(struct conn *c)
{
	if (!c)
		return 0;
	struct answer *a = &c->out;
	struct unit u = {};
	bool top = !a->deep && !a->inside;
	u64 n = a->negative ? 0 : a->number;
	a->state = ANSWER_START;
	if (a->type == '%' || a->type == '|')
		n *= 2;
	if (a->type == '|') {
		a->pending += n;
		return 0;
	}
	a->deep = 1;
	if (top && n && a->type == '*' && !is_empty(c, QUEUED) && peek(c, &u, ASKED) && u.kind == COMMAND_EXEC) {
		a->inside = 1;
		a->members = n;
		a->pending = 0;
		return 0;
	}
	if (top && n && (a->type == '>' || (a->type == '*' && c->subscribed && !c->resp3)))
		a->reads = READS_NEXT;
	a->pending += n;
	return 1;
}

static __always_inline void answer_start(struct conn *c, u8 b)
{
	struct answer *a = &c->out;
	a->type = b;
	a->number = 0;
	a->negative = 0;
	if (!a->pending) {
		a->pending = 1;
		a->top = b;
		a->reads = READS_NOTHING;
		a->deep = 0;
		a->code = 0;
		if (!c->first_ns)
			c->first_ns = c->now;
	} else if (a->reads == READS_NEXT && b != '$') {
		a->reads = READS_NOTHING;
	}
	switch (b) {
	case '+':
	case '-':
		a->word = FNV_START;
		a->left = 0;
		a->state = ANSWER_LINE;
		return;
	case ':': case ',': case '(': case '#': case '_':
		a->left = 1; // nothing of it is read
		a->state = ANSWER_LINE;
		return;
	case '$': case '=': case '!':
		a->state = ANSWER_LENGTH;
		return;
	case '*': case '~': case '%': case '>': case '|':
		a->state = ANSWER_COUNT;
		return;
	}
	broken(c);
}

// failed notes the first word of an error. Errors deeper in an answer are no errors of the command.
static __always_inline void failed(struct conn *c)
{
	if (c->out.deep)
		return;
	u32 *code = bpf_map_lookup_elem(&errors, &c->out.word);
	c->out.code = code ? *code : CODE_OTHER;
}

__noinline int answer_byte(struct conn *c, u8 b)
{
	if (!c)
		return 0;
	struct answer *a = &c->out;
	switch (a->state) {
	case ANSWER_START:
		answer_start(c, b);
		return 0;
	case ANSWER_LINE:
		if (b == '\n') {
			if (a->type == '-')
				failed(c);
			element_end(c);
			return 0;
		}
		if (b == ' ' || b == '\r')
			a->left = 1;
		if (!a->left)
			a->word = fold(a->word, b);
		return 0;
	case ANSWER_LENGTH:
	case ANSWER_COUNT:
		if (is_digit(b)) {
			a->number = a->number * 10 + (b - '0');
			if (a->number > BULK_MOST)
				broken(c);
			return 0;
		}
		if (b == '\r')
			return 0;
		if (b == '-') {
			a->negative = 1;
			return 0;
		}
		if (b != '\n') {
			broken(c);
			return 0;
		}
		if (a->state == ANSWER_COUNT ? elements(c) : a->negative) {
			element_end(c);
			return 0;
		}
		if (a->state != ANSWER_LENGTH)
			return 0;
		a->left = a->number + 2; // with the end of its line
		a->state = ANSWER_BODY;
		if (a->number && (a->reads == READS_NEXT || a->type == '!')) {
			a->word = FNV_START;
			a->state = ANSWER_NAME;
		}
		return 0;
	case ANSWER_NAME: // to its first space
		a->left--;
		if (b != ' ')
			a->word = fold(a->word, b);
		if (b != ' ' && a->left > 2)
			return 0;
		a->state = ANSWER_BODY;
		if (a->reads == READS_NEXT)
			a->reads = READS_DONE;
		if (a->type == '!')
			failed(c);
		return 0;
	}
	return 0;
}

// answer_some takes bytes, a few in one round.
static __always_inline int answer_some(struct conn *c)
{
	struct answer *a = &c->out;
	for (u32 k = 0; k < ROUND; k++) {
		u32 at = c->off - c->base;
		if (at >= c->filled || c->phase != PHASE_READY || a->state == ANSWER_BODY)
			return 0;
		u8 b = seen(c, at);
		c->off++;
		a->bytes++;
		answer_byte(c, b);
	}
	return 0;
}

static long answer_step(u32 i, struct scan *s)
{
	struct conn *c = s->c;
	struct answer *a = &c->out;
	if (c->off >= c->size || c->phase != PHASE_READY)
		return 1;
	if (a->state == ANSWER_BODY) {
		u64 n = c->size - c->off;
		if (n > a->left)
			n = a->left;
		c->off += n;
		a->left -= n;
		a->bytes += n;
		if (!a->left)
			element_end(c);
		return 0;
	}
	if (!look(c))
		return 1;
	answer_some(c);
	return 0;
}

#endif
