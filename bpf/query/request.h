// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What a client says.
#ifndef PLIMSOLL_QUERY_REQUEST_H
#define PLIMSOLL_QUERY_REQUEST_H

#include "wire.h"

static __always_inline void name_byte(struct conn *c, u8 b)
{
	c->name = (c->name ^ b) * FNV_PRIME;
}

static __always_inline void remember(struct conn *c, u64 name, u32 portal, u64 print)
{
	if (name == FNV_START) { // the one without a name
		if (portal)
			c->unnamed_portal = print;
		else
			c->unnamed = print;
		return;
	}
	if (!portal && name == c->last_name)
		c->last_named = print;
	struct name_key key = {.born = c->born, .name = name, .pid = c->pid, .portal = portal};
	if (bpf_map_update_elem(&names, &key, &print, BPF_ANY))
		lose(LOST_NAMES);
}

static __always_inline u64 remembered(struct conn *c, u64 name, u32 portal)
{
	if (name == FNV_START)
		return portal ? c->unnamed_portal : c->unnamed;
	if (!portal && name == c->last_name)
		return c->last_named;
	struct name_key key = {.born = c->born, .name = name, .pid = c->pid, .portal = portal};
	u64 *print = bpf_map_lookup_elem(&names, &key);
	if (!print)
		return 0;
	if (!portal) {
		c->last_name = name;
		c->last_named = *print;
	}
	return *print;
}

// request_begin says where in the body of a message to begin.
static __noinline int request_begin(struct conn *c)
{
	c->name = FNV_START;
	c->in.sub = 0;
	if (c->phase == PHASE_LOGIN)
		return FIELD_SKIP;
	switch (c->in.type) {
	case 0:
		c->name = 0;
		return FIELD_CODE;
	case 'Q':
		return text_begin(c);
	case 'P':
		return FIELD_NAME;
	case 'B':
		return FIELD_PORTAL;
	case 'E':
		return FIELD_RUN;
	}
	return FIELD_SKIP;
}

static __always_inline bool known_request(u8 type)
{
	switch (type) {
	case 0: // only before a connection is ready, when messages have no type
	case 'B': case 'C': case 'D': case 'E': case 'F': case 'H': case 'P': case 'Q': case 'S': case 'X': case 'c': case 'd': case 'f': case 'p':
		return true;
	}
	return false;
}

// code_known takes the number of the first message: a version, or a wish.
static __always_inline void code_known(struct conn *c)
{
	u32 code = c->name;
	c->name = 0;
	c->in.sub = 0;
	c->in.field = FIELD_SKIP;
	if (code == CODE_SSL || code == CODE_GSS)
		c->phase = PHASE_ASKED;
	else if (code == CODE_CANCEL)
		c->phase = PHASE_OTHER;
	else if (code >> 16 == 3)
		c->in.field = FIELD_KEY;
	else
		resync(c);
}

// key_known compares a parameter's last eight letters and its length.
static __always_inline void key_known(struct conn *c)
{
	u64 name = c->name;
	u8 size = c->in.sub;
	c->name = 0;
	c->in.sub = 0;
	c->in.field = FIELD_VALUE;
	if (size == 0)
		c->in.field = FIELD_SKIP;
	if (size == 4 && name == 0x75736572) // user
		c->in.field = FIELD_USER;
	if (size == 8 && name == 0x6461746162617365) // database
		c->in.field = FIELD_DATABASE;
	if (size == 11 && name == 0x6c69636174696f6e) // [rep]lication
		c->in.field = FIELD_REPLICATION;
}

// replicates says whether the first letters of the parameter replication, made small, ask for another protocol. The server takes any beginning of
// false, no and off, and 0, for none.
static __always_inline bool replicates(u32 letters)
{
	u8 one = letters >> 8 ? letters >> 8 : letters;
	return one != 'f' && one != 'n' && one != '0' && letters != ('o' << 8 | 'f');
}

static __always_inline void startup_byte(struct conn *c, u8 b)
{
	u32 at = c->in.sub;
	if (c->in.sub < 255)
		c->in.sub++;
	switch (c->in.field) {
	case FIELD_CODE:
		c->name = c->name << 8 | b;
		if (at == 3)
			code_known(c);
		return;
	case FIELD_KEY:
		if (b)
			c->name = c->name << 8 | b;
		else {
			c->in.sub = at;
			key_known(c);
		}
		return;
	case FIELD_USER:
		if (b && at < NAME - 1)
			c->session.user[at] = b;
		break;
	case FIELD_DATABASE:
		if (b && at < NAME - 1)
			c->session.database[at] = b;
		break;
	case FIELD_REPLICATION:
		if (b && at < 2)
			c->name = c->name << 8 | b | 0x20;
		if (!b && replicates(c->name)) {
			c->phase = PHASE_OTHER;
			return;
		}
		break;
	}
	if (!b) {
		c->in.field = FIELD_KEY;
		c->in.sub = 0;
		c->name = 0;
	}
}

// request_byte takes a byte of a body.
static __noinline int request_byte(struct conn *c, u8 b)
{
	switch (c->in.field) {
	case FIELD_NAME:
		if (b)
			name_byte(c, b);
		else
			c->in.field = FIELD_NAMED_TEXT; // begun outside of the loop over bytes, for the verifier's sake
		return 0;
	case FIELD_PORTAL:
		if (b) {
			name_byte(c, b);
			return 0;
		}
		c->portal = c->name;
		c->name = FNV_START;
		c->in.field = FIELD_STATEMENT;
		return 0;
	case FIELD_STATEMENT:
	case FIELD_RUN:
		if (b)
			name_byte(c, b);
		else
			c->in.field = FIELD_SKIP;
		return 0;
	}
	startup_byte(c, b);
	return 0;
}

// identify makes the pair of user and database known.
static __noinline int identify(struct conn *c)
{
	u64 hash = FNV_START;
	bool own = c->session.database[0]; // else the database is named as the user
	for (u32 i = 0; i < NAME; i++) {
		u8 b = c->session.user[i];
		if (!own)
			c->session.database[i] = b;
		hash = (hash ^ b) * FNV_PRIME;
	}
	for (u32 i = 0; i < NAME; i++)
		hash = (hash ^ (u8)c->session.database[i]) * FNV_PRIME;
	u64 who = mix(hash);
	c->session.used = tending;
	if (!bpf_map_update_elem(&sessions, &who, &c->session, BPF_ANY))
		c->who = who;
	else
		lose(LOST_SESSIONS);
	return 0;
}

// want notes that the text of the statement which is bound here is not known: the server will report it (learned, below). Behind an Execute of the same
// buffer it is not asked for, because the server reports no text of an Execute that turns out to be empty, and so it is not certain whose turn it is.
static __always_inline void want(struct conn *c)
{
	if (c->wanted || c->ran || c->name == FNV_START)
		return;
	c->wanted = c->name;
	c->wanted_at = c->ahead;
}

// executed notes an Execute. A portal may be fetched in parts, with an Execute for each: the first is the statement.
static __always_inline void executed(struct conn *c)
{
	u64 print = remembered(c, c->name, 1);
	if (print & RAN) {
		push(c, UNIT_RESUMED, print & ~RAN, 0);
		return;
	}
	push(c, UNIT_EXECUTE, print, c->bound && c->name == c->portal ? c->bound : 0);
	remember(c, c->name, 1, print | RAN);
}

// request_end notes what the server has to answer.
static __noinline int request_end(struct conn *c)
{
	u8 type = c->in.type;
	if (type == 0 || c->phase == PHASE_LOGIN) { // a password is no part of a statement
		c->in.bytes = 0;
		if (c->phase == PHASE_STARTUP)
			c->phase = PHASE_LOGIN;
		return 0;
	}
	if (type == 'S') {
		c->skipping = 0;
		c->open = 0;
		if (c->copying) // the server steps over it
			return 0;
		push(c, UNIT_SYNC, c->subject, 0);
		return 0;
	}
	if (type == 'c' || type == 'f') {
		if (c->copying) {
			c->copied = c->in.bytes;
			c->in.bytes = 0;
			c->copying = 0;
			return 0;
		}
		if (c->head != c->tail) // of a COPY whose answer is still to come; else the server ignores it
			push(c, UNIT_COPIED, 0, 0);
		return 0;
	}
	if (c->skipping) // after an error the server ignores all until Sync
		return 0;
	if (type == 'Q' || type == 'P' || type == 'B')
		c->ahead++;
	switch (type) {
	case 'Q':
		c->open = 0;
		push(c, UNIT_QUERY, c->print, c->held);
		return 0;
	case 'P':
		c->open = 1;
		c->subject = c->print;
		remember(c, c->name, 0, c->print);
		c->parsed_name = c->name;
		c->parsed = c->held;
		push(c, UNIT_PARSE, c->print, c->held);
		return 0;
	case 'B': {
		u64 print = remembered(c, c->name, 0);
		// After a round of texts, user space may have forgotten that of a statement with a name; one without is sent with each Parse.
		if (!print || (text_round && c->name != FNV_START && !is_told(print))) {
			lose(LOST_PREPARED);
			want(c);
		}
		c->open = 1;
		c->subject = print;
		c->bound = c->parsed && c->name == c->parsed_name ? c->parsed : 0;
		remember(c, c->portal, 1, print);
		return 0;
	}
	case 'E':
		c->open = 1;
		c->ran++;
		executed(c);
		return 0;
	case 'F':
		c->open = 0;
		push(c, UNIT_CALL, 0, 0);
		return 0;
	case 'C':
	case 'D':
		c->open = 1;
		return 0;
	}
	return 0;
}

// request_some takes bytes of a body that is no text, a few in one round.
static __noinline int request_some(struct conn *c)
{
	for (u32 k = 0; k < ROUND; k++) {
		u32 at = c->off - c->base;
		if (at >= c->filled || !c->in.left || c->in.field == FIELD_SKIP || c->in.field == FIELD_NAMED_TEXT)
			return 0;
		u8 b = seen(c, at);
		c->off++;
		c->in.left--;
		c->in.bytes++;
		request_byte(c, b);
	}
	return 0;
}

// lex_some takes bytes of a text, a few in one round.
static __noinline int lex_some(struct conn *c)
{
	for (u32 k = 0; k < ROUND; k++) {
		u32 at = c->off - c->base;
		if (at >= c->filled || !c->in.left)
			return 0;
		u8 b = seen(c, at);
		c->off++;
		c->in.left--;
		c->in.bytes++;
		if (!b) {
			c->in.field = FIELD_SKIP;
			text_end(c);
			return 0;
		}
		lex_byte(&c->text, b);
	}
	return 0;
}

static long request_step(u32 i, struct scan *ctx)
{
	struct conn *c = ctx->c;
	if (c->off >= c->size || c->phase == PHASE_UNSYNCED || c->phase == PHASE_OTHER)
		return 1;
	if (c->in.have < 5) {
		u32 took = head(c, &c->in);
		if (!took)
			return 1;
		c->in.bytes += took;
		if (c->in.have < 5)
			return 0;
		u32 most = c->in.type ? MESSAGE_MOST : STARTUP_MOST;
		if (c->in.length < 4 || c->in.length > most || !known_request(c->in.type) || (c->in.type == 0) != (c->phase == PHASE_STARTUP)) {
			lose(LOST_FRAMING);
			resync(c);
			return 1;
		}
		c->in.left = c->in.length - 4;
		c->in.field = request_begin(c);
	}
	if (c->in.field != FIELD_SKIP && c->in.left && c->off < c->size) {
		if (look(c) >= WINDOW)
			return 1;
		if (c->in.field == FIELD_TEXT)
			lex_some(c);
		else
			request_some(c);
		if (c->in.field == FIELD_NAMED_TEXT)
			c->in.field = text_begin(c);
	}
	if (c->in.field == FIELD_SKIP && c->in.left)
		c->in.bytes += skip(c, &c->in);
	if (c->in.left == 0) {
		request_end(c);
		c->in.have = 0;
		if (c->phase == PHASE_ASKED || c->phase == PHASE_STARTUP) {
			c->in.have = 1; // such a message has no type
			c->in.type = 0;
			c->in.length = 0;
		}
	}
	return 0;
}

#endif
