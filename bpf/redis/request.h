// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the client says: commands as arrays of strings, or inline as a line of words.
#ifndef PLIMSOLL_REDIS_REQUEST_H
#define PLIMSOLL_REDIS_REQUEST_H

#include "wire.h"

enum { REQUEST_START, REQUEST_COUNT, REQUEST_DOLLAR, REQUEST_LENGTH, REQUEST_BODY, REQUEST_INLINE, REQUEST_WORD };

// What an argument is. FIELD_SKIP is a value, unread.
enum { FIELD_SKIP, FIELD_NAME, FIELD_SUB, FIELD_KEY, FIELD_NUMBER, FIELD_WORD, FIELD_USER };

enum { ASKS_USER = 1 << 8 }; // with the version of the protocol that HELLO asks for

// What an option says of the argument behind it.
enum { EXPECT_OPTION, EXPECT_KEY, EXPECT_USER, EXPECT_VALUE, EXPECT_NOTHING };

// Words of options, by their hashes (a test holds them against what they are of).
#define WORD_STREAMS 0x81f528932d7f3d02ULL
#define WORD_BLOCK 0x14e5faab9ce0e362ULL
#define WORD_AUTH 0x5dc77a84260a774fULL
#define WORD_SETNAME 0x6d26ed95d05cb6a8ULL
#define WORD_ON 0x08b05807b5566370ULL
#define WORD_OFF 0x1a249b1921e2bdeaULL
#define WORD_SKIP 0x3f1a3b18de6ae902ULL

static __always_inline void command_start(struct conn *c)
{
	c->in.at = 0;
	c->in.arg = 0;
	c->in.blocks = 0;
	c->in.expect = EXPECT_OPTION;
	c->print = 0;
	c->name = FNV_START;
	c->command = (struct command){};
	c->key_at = c->key_size = 0;
}

// field_of says what the next argument is.
static __always_inline u8 field_of(struct conn *c)
{
	u32 at = c->in.at;
	struct command *m = &c->command;
	if (at == 0)
		return FIELD_NAME;
	if (!m->id)
		return FIELD_SKIP;
	if (at == 1 && m->flags & COMMAND_CONTAINS)
		return FIELD_SUB;
	if (m->key == KEY_AFTER_STREAMS)
		return c->in.expect == EXPECT_KEY ? FIELD_KEY : c->in.expect == EXPECT_OPTION ? FIELD_WORD : FIELD_SKIP;
	if (m->key) {
		if (at == m->key)
			return FIELD_KEY;
		return m->flags & COMMAND_COUNTS_KEYS && at + 1 == m->key ? FIELD_NUMBER : FIELD_SKIP;
	}
	switch (m->kind) {
	case COMMAND_SELECT:
		return at == 1 ? FIELD_NUMBER : FIELD_SKIP;
	case COMMAND_REPLY:
		return at == 2 ? FIELD_WORD : FIELD_SKIP;
	case COMMAND_AUTH: // with one argument that is the password of the default user
		return at == 1 && c->in.args == 2 && c->in.state == REQUEST_LENGTH ? FIELD_USER : FIELD_SKIP;
	case COMMAND_HELLO:
		if (at == 1)
			return FIELD_NUMBER;
		return c->in.expect == EXPECT_USER ? FIELD_USER : c->in.expect == EXPECT_OPTION ? FIELD_WORD : FIELD_SKIP;
	}
	return FIELD_SKIP;
}

__noinline int argument_begin(struct conn *c)
{
	if (!c)
		return 0;
	u8 field = field_of(c);
	c->in.field = field;
	c->in.number = 0;
	c->in.length = 0;
	c->word = FNV_START;
	if (field == FIELD_SUB)
		c->word = fold(c->name, '|');
	if (field == FIELD_KEY) {
		pattern_start(&c->key);
		c->key_at = c->ptr + c->off;
	}
	if (field == FIELD_USER)
		__builtin_memset(c->asks_user, 0, USER);
	return 0;
}

static __always_inline void argument_byte(struct conn *c, u8 b)
{
	u32 n = c->in.length++;
	switch (c->in.field) {
	case FIELD_NAME:
	case FIELD_SUB:
	case FIELD_WORD:
		c->word = n < NAME_MOST ? fold(c->word, lower(b)) : 0;
		return;
	case FIELD_KEY:
		pattern_byte(&c->key, b);
		return;
	case FIELD_NUMBER:
		if (is_digit(b) && n < 10)
			c->in.number = c->in.number * 10 + (b - '0');
		return;
	case FIELD_USER:
		if (n < USER - 1)
			c->asks_user[n & (USER - 1)] = b;
		return;
	}
}

// named finds what is known of the name at hand.
static __always_inline bool named(struct conn *c)
{
	u64 hash = c->word;
	if (hash == c->last_name && c->last.id) {
		c->command = c->last;
		return true;
	}
	struct command *found = bpf_map_lookup_elem(&commands, &hash);
	if (!found || !found->id)
		return false;
	c->command = c->last = *found;
	c->last_name = hash;
	return true;
}

static __always_inline void option(struct conn *c)
{
	u64 word = c->word;
	if (c->command.kind == COMMAND_REPLY) {
		c->in.arg = word == WORD_OFF ? 1 : word == WORD_SKIP ? 2 : word == WORD_ON ? 3 : 0;
		return;
	}
	if (word == WORD_STREAMS && c->command.key == KEY_AFTER_STREAMS)
		c->in.expect = EXPECT_KEY;
	if (word == WORD_BLOCK && c->command.key == KEY_AFTER_STREAMS)
		c->in.blocks = 1;
	if (word == WORD_AUTH && c->command.kind == COMMAND_HELLO)
		c->in.expect = EXPECT_USER;
	if (word == WORD_SETNAME && c->command.kind == COMMAND_HELLO)
		c->in.expect = EXPECT_VALUE;
}

__noinline int argument_end(struct conn *c)
{
	if (!c)
		return 0;
	switch (c->in.field) {
	case FIELD_NAME:
		c->name = c->word;
		if (!named(c))
			return 0;
		c->in.blocks = c->command.flags & COMMAND_BLOCKS ? 1 : 0;
		if (c->command.kind == COMMAND_AUTH)
			__builtin_memset(c->asks_user, 0, USER);
		return 0;
	case FIELD_SUB: {
		struct command container = c->command;
		if (named(c)) {
			c->name = c->word;
		} else { // the server does not know it either, or it takes the name alone
			c->command = container;
			c->command.flags = 0;
		}
		return 0;
	}
	case FIELD_KEY: {
		c->key_size = c->in.length;
		bool cut = c->in.length > KEY_MOST;
		c->print = mix(c->name ^ pattern_end(&c->key, cut) * 0x9fb21c651e98df25ULL);
		show(c, c->print, c->key_at, c->key_size);
		c->command.key = 0;
		c->in.expect = EXPECT_NOTHING;
		return 0;
	}
	case FIELD_NUMBER:
		c->in.arg = c->in.number > 0xffff ? 0xffff : c->in.number;
		if (c->command.flags & COMMAND_COUNTS_KEYS && !c->in.number)
			c->command.key = 0; // what follows are arguments
		return 0;
	case FIELD_USER:
		c->in.expect = EXPECT_VALUE; // the password
		c->in.arg |= ASKS_USER;
		return 0;
	case FIELD_WORD:
		option(c);
		return 0;
	}
	if (c->in.expect == EXPECT_VALUE)
		c->in.expect = EXPECT_OPTION;
	return 0;
}

// command_end notes what the server has to answer.
__noinline int command_end(struct conn *c)
{
	if (!c)
		return 0;
	struct command *m = &c->command;
	if (m->id && !c->print) {
		c->print = mix(c->name);
		show(c, c->print, 0, 0);
	}
	u64 bytes = c->in.bytes;
	c->in.bytes = 0;
	c->in.state = REQUEST_START;
	if (m->kind == COMMAND_REPLY && c->in.arg == 3)
		c->in.mute = c->in.skip = 0;
	bool unanswered = c->in.mute || c->in.skip;
	c->in.skip = 0;
	if (m->kind == COMMAND_REPLY && (c->in.arg == 1 || c->in.arg == 2)) {
		c->in.mute |= c->in.arg == 1;
		c->in.skip = c->in.arg == 2;
		unanswered = true;
	}
	if (m->kind == COMMAND_REPLICA)
		unanswered = true;
	if (unanswered) { // nobody will know how it ended
		count(c, c->print, 0, bytes, 0);
		if (m->kind == COMMAND_REPLICA)
			c->phase = PHASE_OTHER;
		return 0;
	}
	if (m->kind == COMMAND_AUTH && c->in.at == 2) {
		__builtin_memset(c->asks_user, 0, USER);
		__builtin_memcpy(c->asks_user, "default", 7);
	}
	if (m->kind == COMMAND_SUBSCRIBE)
		c->subscribed = 1;
	struct unit u = {.print = c->print, .read_ns = c->in.blocks ? 0 : c->now, .bytes = bytes, .kind = m->kind, .arg = c->in.arg, .command = m->id};
	push(c, &u, ASKED);
	return 0;
}

// argument_skipped goes on behind an argument and its line's end.
static __always_inline void argument_skipped(struct conn *c)
{
	c->in.at++;
	if (--c->in.args)
		c->in.state = REQUEST_DOLLAR;
	else
		command_end(c);
}

// inline_byte takes a byte of a line of words. Quotes hold a word together.
static __always_inline void inline_byte(struct conn *c, u8 b)
{
	if (b == '\n') {
		if (c->in.state == REQUEST_WORD) {
			argument_end(c);
			c->in.at++;
		}
		command_end(c);
		return;
	}
	if (c->in.quote) {
		if (c->in.quote == '\\')
			c->in.quote = '"';
		else if (b == '\\' && c->in.quote == '"')
			c->in.quote = '\\';
		else if (b == c->in.quote)
			c->in.quote = 0;
		else
			argument_byte(c, b);
		return;
	}
	bool space = b == ' ' || (u8)(b - '\t') < 5;
	if (c->in.state == REQUEST_WORD && space) {
		argument_end(c);
		c->in.at++;
		c->in.state = REQUEST_INLINE;
		return;
	}
	if (space)
		return;
	if (c->in.state == REQUEST_INLINE) {
		c->off--; // the word begins at this byte
		argument_begin(c);
		c->off++;
		c->in.state = REQUEST_WORD;
	}
	if (b == '"' || b == '\'') {
		c->in.quote = b;
		c->key_at = 0; // what is in the buffer is not the key
	} else {
		argument_byte(c, b);
	}
}

// request_byte takes a byte that is no value.
__noinline int request_byte(struct conn *c, u8 b)
{
	if (!c)
		return 0;
	switch (c->in.state) {
	case REQUEST_START:
		if (b == ' ' || (u8)(b - '\t') < 5) { // an empty line is no command
			c->in.bytes = 0;
			return 0;
		}
		command_start(c);
		c->in.number = 0;
		c->in.negative = 0;
		c->in.quote = 0;
		c->in.bytes = 1;
		c->in.args = 0;
		if (b == '*') {
			c->in.state = REQUEST_COUNT;
			return 0;
		}
		c->in.state = REQUEST_INLINE;
		inline_byte(c, b);
		return 0;
	case REQUEST_COUNT:
	case REQUEST_LENGTH:
		if (is_digit(b)) {
			c->in.number = c->in.number * 10 + (b - '0');
			if (c->in.number > BULK_MOST)
				broken(c);
			return 0;
		}
		if (b == '\r')
			return 0;
		if (b == '-') {
			c->in.negative = 1;
			return 0;
		}
		if (b != '\n') {
			broken(c);
			return 0;
		}
		if (c->in.state == REQUEST_COUNT) {
			if (c->in.negative || !c->in.number) {
				c->in.state = REQUEST_START;
				return 0;
			}
			if (c->in.number > ARGS_MOST) {
				broken(c);
				return 0;
			}
			c->in.args = c->in.number;
			c->in.state = REQUEST_DOLLAR;
			return 0;
		}
		if (c->in.negative) {
			broken(c);
			return 0;
		}
		c->in.left = c->in.number;
		argument_begin(c);
		c->in.state = REQUEST_BODY;
		if (c->in.field != FIELD_SKIP && c->in.left)
			return 0;
		argument_end(c);
		c->in.field = FIELD_SKIP;
		c->in.left += 2; // the end of its line
		return 0;
	case REQUEST_DOLLAR:
		if (b != '$') {
			broken(c);
			return 0;
		}
		c->in.number = 0;
		c->in.negative = 0;
		c->in.state = REQUEST_LENGTH;
		return 0;
	case REQUEST_BODY:
		argument_byte(c, b);
		if (--c->in.left)
			return 0;
		argument_end(c);
		c->in.field = FIELD_SKIP;
		c->in.left = 2;
		return 0;
	default:
		inline_byte(c, b);
		return 0;
	}
}

// request_some takes bytes, a few in one round.
static __always_inline int request_some(struct conn *c)
{
	for (u32 k = 0; k < ROUND; k++) {
		u32 at = c->off - c->base;
		if (at >= c->filled || c->phase != PHASE_READY || (c->in.state == REQUEST_BODY && c->in.field == FIELD_SKIP))
			return 0;
		u8 b = seen(c, at);
		c->off++;
		c->in.bytes++;
		request_byte(c, b);
	}
	return 0;
}

static long request_step(u32 i, struct scan *s)
{
	struct conn *c = s->c;
	if (c->off >= c->size || c->phase != PHASE_READY)
		return 1;
	if (c->in.state == REQUEST_BODY && c->in.field == FIELD_SKIP) {
		u64 n = c->size - c->off;
		if (n > c->in.left)
			n = c->in.left;
		c->off += n;
		c->in.left -= n;
		c->in.bytes += n;
		if (!c->in.left)
			argument_skipped(c);
		return 0;
	}
	if (!look(c))
		return 1;
	request_some(c);
	return 0;
}

#endif
