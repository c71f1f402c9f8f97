// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The pattern of a key, as a hash that is made byte by byte, so that a key may come in any number of pieces. A key is words of letters and digits with
// signs between them. A word of letters alone counts as it stands; one of letters and then digits counts with its digits as one; any other
// (letters behind digits, bytes that are no ASCII, very long ones) counts as one whatever it is: it names one thing of many. pattern.go does the same.
#ifndef PLIMSOLL_REDIS_PATTERN_H
#define PLIMSOLL_REDIS_PATTERN_H

#include "types.h"

#define FNV_START 0xcbf29ce484222325ULL
#define FNV_PRIME 0x100000001b3ULL

enum { PATTERN_SIGN, PATTERN_LETTERS, PATTERN_DIGITS, PATTERN_MIXED };

static __always_inline u64 fold(u64 hash, u8 b)
{
	return (hash ^ b) * FNV_PRIME;
}

static __always_inline void pattern_start(struct pattern *p)
{
	p->hash = p->word = FNV_START;
	p->size = p->length = 0;
	p->state = PATTERN_SIGN;
}

// pattern_word ends the word at hand. No key that counts as it stands has the bytes 1 and 2.
static __always_inline void pattern_word(struct pattern *p)
{
	if (p->state == PATTERN_LETTERS)
		p->hash = p->word;
	else if (p->state == PATTERN_DIGITS)
		p->hash = fold(p->word, 1);
	else if (p->state == PATTERN_MIXED)
		p->hash = fold(p->hash, 1);
	p->length = 0;
	p->state = PATTERN_SIGN;
}

static __always_inline void pattern_byte(struct pattern *p, u8 b)
{
	if (p->size >= KEY_MOST)
		return;
	p->size++;
	if ((u8)((b | 0x20) - 'a') < 26) {
		if (p->state == PATTERN_SIGN) {
			p->word = p->hash;
			p->state = PATTERN_LETTERS;
		} else if (p->state == PATTERN_DIGITS) {
			p->state = PATTERN_MIXED;
		}
		if (p->state == PATTERN_LETTERS) {
			p->word = fold(p->word, b);
			if (++p->length > WORD_MOST)
				p->state = PATTERN_MIXED;
		}
		return;
	}
	if ((u8)(b - '0') < 10) {
		if (p->state == PATTERN_SIGN)
			p->word = p->hash;
		if (p->state != PATTERN_MIXED)
			p->state = PATTERN_DIGITS;
		return;
	}
	if (b < ' ' || b >= 0x7f) {
		p->state = PATTERN_MIXED;
		return;
	}
	pattern_word(p);
	p->hash = fold(p->hash, b);
}

// pattern_end gives the hash of a pattern. What is cut is told from what is not.
static __always_inline u64 pattern_end(struct pattern *p, bool cut)
{
	pattern_word(p);
	return cut ? fold(p->hash, 2) : p->hash;
}

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

#endif
