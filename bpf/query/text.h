// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fingerprint of a text: a hash in which literals, comments and the amount of white space do not count, taken byte by byte so that a
// text may come in any number of pieces. It only has to be finer than the normal form that user space writes (bpf/statement), never
// coarser: two texts that share a fingerprint are shown as one statement, while two fingerprints of one normal form are added up later.
// So whatever is doubtful (letters behind digits, dollar quotes, signs) counts as it stands.
#ifndef PLIMSOLL_QUERY_TEXT_H
#define PLIMSOLL_QUERY_TEXT_H

#include "types.h"

enum {
	LEX_GAP,
	LEX_WORD,
	LEX_NUMBER,
	LEX_UNDERSCORE, // after one in a number
	LEX_EXPONENT, // after the e of a number
	LEX_EXPONENT_SIGN,
	LEX_STRING,
	LEX_STRING_QUOTE, // a quote in a string: its end, or the first of two
	LEX_STRING_ESCAPE,
	LEX_IDENTIFIER, // in double quotes
	LEX_DASH,
	LEX_SLASH,
	LEX_LINE,
	LEX_BLOCK,
	LEX_BLOCK_STAR,
	LEX_BLOCK_SLASH,
	LEX_DOLLAR,
	LEX_PARAMETER,
	LEX_VERBATIM, // from a dollar quote on: its end is not worth finding
};

// A list of literals in parentheses counts as one literal, so that IN (1, 2, 3) and IN (4, 5) are one statement.
enum { LIST_NONE, LIST_OPEN, LIST_LITERAL, LIST_COMMA };

#define FNV_START 0xcbf29ce484222325ULL
#define FNV_PRIME 0x100000001b3ULL

static __always_inline void lex_emit(struct lexed *t, u8 b)
{
	t->hash = (t->hash ^ b) * FNV_PRIME;
}

static __always_inline void lex_start(struct lexed *t)
{
	t->hash = FNV_START;
	t->literals = t->folded = t->depth = 0;
	t->state = LEX_GAP;
	t->list = LIST_NONE;
	t->gap = t->escapes = t->zero = 0;
}

// lex_flush ends a list that turned out to hold more than literals: what was left out of it counts after all.
static __always_inline void lex_flush(struct lexed *t)
{
	if (t->folded)
		t->hash = (t->hash ^ (0x100000000ULL + t->folded)) * FNV_PRIME;
	if (t->list == LIST_COMMA)
		lex_emit(t, ',');
	t->folded = 0;
	t->list = LIST_NONE;
}

static __always_inline void lex_space(struct lexed *t)
{
	if (t->gap)
		lex_emit(t, ' ');
	t->gap = 0;
}

// lex_token begins a token that is no literal.
static __always_inline void lex_token(struct lexed *t, u8 b)
{
	if (t->list == LIST_LITERAL && b == ')') { // the list held literals alone
		t->folded = 0;
		t->list = LIST_NONE;
	}
	if (t->list == LIST_LITERAL && b == ',') {
		t->list = LIST_COMMA;
		t->gap = 0;
		return;
	}
	if (t->list)
		lex_flush(t);
	lex_space(t);
	lex_emit(t, b);
	if (b == '(')
		t->list = LIST_OPEN;
}

static __always_inline void lex_literal(struct lexed *t)
{
	t->literals++;
	if (t->list == LIST_COMMA) {
		t->folded++;
		t->list = LIST_LITERAL;
		t->gap = 0;
		return;
	}
	u8 list = LIST_NONE;
	if (t->list == LIST_OPEN)
		list = LIST_LITERAL;
	else if (t->list)
		lex_flush(t);
	lex_space(t);
	lex_emit(t, 1); // no text has this byte; ? is an operator
	t->list = list;
}

static __always_inline bool is_digit(u8 b)
{
	return b - '0' <= 9U;
}

static __always_inline bool is_letter(u8 b)
{
	return (u8)((b | 0x20) - 'a') < 26 || b == '_' || b >= 0x80;
}

static __always_inline bool is_space(u8 b)
{
	return b == ' ' || (u8)(b - '\t') < 5;
}

// lex_fresh takes a byte that begins something.
static __always_inline void lex_fresh(struct lexed *t, u8 b)
{
	t->state = LEX_GAP;
	if (is_space(b)) {
		t->gap = 1;
		return;
	}
	if (is_digit(b)) {
		lex_literal(t);
		t->zero = b == '0';
		t->state = LEX_NUMBER;
		return;
	}
	if (b == '\'') {
		lex_literal(t);
		t->escapes = 0;
		t->state = LEX_STRING;
		return;
	}
	if (b == '-') {
		t->state = LEX_DASH;
		return;
	}
	if (b == '/') {
		t->state = LEX_SLASH;
		return;
	}
	lex_token(t, b);
	if (is_letter(b)) {
		t->escapes = (b | 0x20) == 'e'; // of E'...', unless more letters follow
		t->state = LEX_WORD;
	}
	if (b == '"')
		t->state = LEX_IDENTIFIER;
	if (b == '$')
		t->state = LEX_DOLLAR;
}

static __always_inline void lex_byte(struct lexed *t, u8 b)
{
	switch (t->state) {
	case LEX_WORD:
		if (is_letter(b) || is_digit(b) || b == '$') {
			t->escapes = 0;
			lex_emit(t, b);
			return;
		}
		if (b == '\'' && t->escapes) {
			lex_literal(t);
			t->state = LEX_STRING;
			return;
		}
		break;
	case LEX_NUMBER:
		if (is_digit(b) || b == '.') {
			t->zero = 0;
			return;
		}
		if (b == '_') {
			t->state = LEX_UNDERSCORE;
			return;
		}
		if ((b | 0x20) == 'e') {
			t->state = LEX_EXPONENT;
			return;
		}
		if (is_letter(b)) { // 1a is not '1' a, and 0x1 may be a number
			lex_emit(t, 2 + t->zero);
			lex_token(t, b);
			t->escapes = 0;
			t->state = LEX_WORD;
			return;
		}
		break;
	case LEX_UNDERSCORE:
		if (is_digit(b)) {
			t->zero = 0;
			t->state = LEX_NUMBER;
			return;
		}
		lex_emit(t, 1 + t->state); // no text has bytes as small
		lex_emit(t, b);
		t->state = LEX_VERBATIM;
		return;
	case LEX_EXPONENT: // the server takes nothing else behind it
	case LEX_EXPONENT_SIGN:
		if (is_digit(b)) {
			t->zero = 0;
			t->state = LEX_NUMBER;
			return;
		}
		if (t->state == LEX_EXPONENT && (b == '+' || b == '-')) {
			t->state = LEX_EXPONENT_SIGN;
			lex_emit(t, b == '-' ? 14 : 15);
			return;
		}
		lex_emit(t, 1 + t->state); // no text has bytes as small
		lex_emit(t, b);
		t->state = LEX_VERBATIM;
		return;
	case LEX_STRING:
		if (b == '\'')
			t->state = LEX_STRING_QUOTE;
		if (b == '\\' && t->escapes)
			t->state = LEX_STRING_ESCAPE;
		return;
	case LEX_STRING_ESCAPE:
		t->state = LEX_STRING;
		return;
	case LEX_STRING_QUOTE:
		if (b == '\'') {
			t->state = LEX_STRING;
			return;
		}
		break;
	case LEX_IDENTIFIER:
		lex_emit(t, b);
		if (b == '"')
			t->state = LEX_GAP;
		return;
	case LEX_DASH:
		if (b == '-') {
			t->state = LEX_LINE;
			return;
		}
		lex_token(t, '-');
		break;
	case LEX_SLASH:
		if (b == '*') {
			t->depth = 1;
			t->state = LEX_BLOCK;
			return;
		}
		lex_token(t, '/');
		break;
	case LEX_LINE:
		if (b == '\n' || b == '\r') {
			t->gap = 1;
			t->state = LEX_GAP;
		}
		return;
	case LEX_BLOCK_STAR:
		if (b == '/') {
			t->depth--;
			t->gap = 1;
			t->state = t->depth ? LEX_BLOCK : LEX_GAP;
			return;
		}
		t->state = b == '*' ? LEX_BLOCK_STAR : LEX_BLOCK;
		return;
	case LEX_BLOCK_SLASH:
		if (b == '*')
			t->depth++;
		t->state = b == '/' ? LEX_BLOCK_SLASH : LEX_BLOCK;
		return;
	case LEX_BLOCK:
		if (b == '*')
			t->state = LEX_BLOCK_STAR;
		if (b == '/')
			t->state = LEX_BLOCK_SLASH;
		return;
	case LEX_DOLLAR: // $1 is a parameter and counts; $$ and $tag$ begin a string
		lex_emit(t, b);
		t->state = is_digit(b) ? LEX_PARAMETER : LEX_VERBATIM;
		return;
	case LEX_PARAMETER:
		if (is_digit(b)) {
			lex_emit(t, b);
			return;
		}
		break;
	case LEX_VERBATIM:
		lex_emit(t, b);
		return;
	}
	lex_fresh(t, b);
}

// RAN is a bit that no print has: with it a portal's print says that the portal was executed.
#define RAN (1ULL << 63)

// mix spreads a hash over all its bits (the finaliser of MurmurHash3); 0 is kept for "not known".
static __always_inline u64 mix(u64 h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	h ^= h >> 33;
	return h ? h : 1;
}

static __always_inline u64 lex_end(struct lexed *t)
{
	if (t->state == LEX_DASH)
		lex_token(t, '-');
	if (t->state == LEX_SLASH)
		lex_token(t, '/');
	if (t->state == LEX_UNDERSCORE || t->state == LEX_EXPONENT || t->state == LEX_EXPONENT_SIGN)
		lex_emit(t, 1 + t->state);
	lex_flush(t);
	u64 print = mix(t->hash) & ~RAN;
	return print ? print : 1;
}

#endif
