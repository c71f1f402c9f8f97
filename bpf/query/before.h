// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What is not seen of a connection that was there before: who speaks, and the texts of statements that are prepared already.
#ifndef PLIMSOLL_QUERY_BEFORE_H
#define PLIMSOLL_QUERY_BEFORE_H

#include "request.h"

// title_byte reads the title of a backend: "postgres: [cluster: ]user database host(port) activity", where [local] may be the host.
// A name with a space in it moves the host from its place, and then nothing is known.
struct title {
	struct conn *c;
	u32 word, at; // which word after the program's, and the byte in it
	u32 size;
	u8 before;    // the last byte
	u8 known;
	u8 local;
};

static long title_byte(u32 i, struct title *t)
{
	enum { PROGRAM, USER, DATABASE, HOST };
	struct conn *c = t->c;
	if (i >= t->size || i >= WINDOW)
		return 1;
	u8 b = c->window[i];
	if (b && b != ' ') {
		if (t->word == USER && t->at < NAME - 1)
			c->session.user[t->at] = b;
		if (t->word == DATABASE && t->at < NAME - 1)
			c->session.database[t->at] = b;
		if (t->at == 0)
			t->local = b == '[';
		t->before = b;
		t->at++;
		return 0;
	}
	if (t->word == HOST)
		t->known = t->before == (t->local ? ']' : ')');
	if (!b || t->word == HOST || !t->at || (t->word == PROGRAM && t->before != ':'))
		return 1;
	if (t->word == USER && t->before == ':') // that was the cluster
		__builtin_memset(c->session.user, 0, NAME);
	else
		t->word++;
	t->at = 0;
	return 0;
}

// met_late reads from the title of a process who speaks on a connection that was there before, or whose startup was not understood. It is asked when
// the server has answered: before that, nobody knows whether it lets the client in.
static __noinline int met_late(struct conn *c)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct mm_struct *mm = NULL;
	struct title t = {.c = c};
	u64 begin = 0;
	__builtin_memset(&c->session, 0, sizeof(c->session));
	read_field(mm, task, mm);
	read_field(begin, mm, arg_start);
	long n = bpf_probe_read_user_str(c->window, WINDOW, (void *)begin);
	t.size = n > 0 ? n : 0;
	bpf_loop(WINDOW, title_byte, &t, 0);
	if (t.known)
		identify(c);
	return 0;
}

static long learn_step(u32 i, struct scan *ctx)
{
	struct conn *c = ctx->c;
	if (c->in.field != FIELD_TEXT)
		return 1;
	if (c->off - c->base >= c->filled) {
		long n = bpf_probe_read_user_str(c->window, WINDOW, (void *)(c->ptr + c->off));
		if (n < 0) {
			lose(LOST_FAULTS);
			return 1;
		}
		if (n == 0) { // Linux before 6.13 answers so where the text ends at once
			c->window[0] = 0;
			n = 1;
		}
		c->base = c->off;
		c->filled = n < WINDOW ? n : WINDOW - 1; // what was cut has an end that is none
	}
	lex_some(c);
	return 0;
}

// learned takes a text that the server reports to be at work on. What was read before has been walked to its end, so that the connection's
// place in its buffer is free; but a text of which only a part was read is not.
static __noinline int learned(struct conn *c, u64 text, u64 now)
{
	if (!c->wanted || ++c->reported != c->wanted_at)
		return 0;
	u64 name = c->wanted, bytes = c->in.bytes;
	c->wanted = 0;
	if (c->phase != PHASE_READY || c->in.have)
		return 0;
	c->ptr = text;
	c->now = now;
	c->size = c->in.left = 1 << 20;
	c->off = c->base = c->filled = 0;
	c->raw = c->text_at = c->text_before = 0;
	c->in.field = FIELD_TEXT;
	lex_start(&c->text);
	struct scan s = {.c = c};
	bpf_loop(1 << 16, learn_step, &s, 0);
	if (c->in.field == FIELD_SKIP)
		remember(c, name, 0, c->print);
	c->in.field = FIELD_SKIP;
	c->in.left = 0;
	c->in.bytes = bytes;
	return 0;
}

#endif
