// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The walk over what was read or written. Values are stepped over without being read; what tells something is taken byte by byte.
#ifndef PLIMSOLL_REDIS_WIRE_H
#define PLIMSOLL_REDIS_WIRE_H

#include "pattern.h"
#include "units.h"

enum {
	ROUND = 16,          // bytes that one round of a loop takes: a round has its price, and so has checking what a longer one may do
	ARGS_MOST = 1 << 30, // of a command: Redis takes INT_MAX
};
#define BULK_MOST (1ULL << 40) // bytes of an argument: proto-max-bulk-len is 512 MB unless somebody set it higher

struct scan {
	struct conn *c;
};

static __always_inline void begin(struct conn *c, u64 ptr, u32 size, u64 now)
{
	c->ptr = ptr;
	c->size = size;
	c->now = now;
	c->off = c->base = c->filled = 0;
}

// look makes sure that the byte at the offset is in the window, and says whether it is.
static __always_inline bool look(struct conn *c)
{
	u32 at = c->off - c->base;
	if (at < c->filled && at < WINDOW)
		return true;
	u32 n = c->size - c->off;
	if (n > WINDOW)
		n = WINDOW;
	if (bpf_probe_read_user(c->window, n, (void *)(c->ptr + c->off))) {
		lose(LOST_FAULTS);
		resync(c);
		return false;
	}
	c->base = c->off;
	c->filled = n;
	return true;
}

// seen is a byte of the window. The compiler must not check one register and use another, which the verifier does not follow.
static __always_inline u8 seen(struct conn *c, u32 at)
{
	asm volatile("" : "+r"(at));
	return at < WINDOW ? c->window[at] : 0;
}

static __always_inline bool is_digit(u8 b)
{
	return (u8)(b - '0') < 10;
}

static __always_inline u8 lower(u8 b)
{
	return (u8)(b - 'A') < 26 ? b | 0x20 : b;
}

static __always_inline void broken(struct conn *c)
{
	lose(LOST_FRAMING);
	resync(c);
}

// identify makes the number of who speaks, and keeps what it stands for.
__noinline int identify(struct conn *c)
{
	if (!c)
		return 0;
	u64 hash = FNV_START;
	for (u32 i = 0; i < USER; i++) {
		u8 b = c->session.user[i];
		if (!b)
			break;
		hash = fold(hash, b);
	}
	u64 who = mix(hash ^ (u64)(c->session.database + 1) * 0x9fb21c651e98df25ULL);
	c->session.used = tending;
	if (!bpf_map_lookup_elem(&sessions, &who) && bpf_map_update_elem(&sessions, &who, &c->session, BPF_ANY)) {
		lose(LOST_SESSIONS);
		who = 0;
	}
	c->who = who;
	return 0;
}

// default_user is who a connection is before it says anything else.
static __always_inline void default_user(struct conn *c)
{
	__builtin_memset(&c->session, 0, sizeof(c->session));
	__builtin_memcpy(c->session.user, "default", 7);
	identify(c);
}

// is_told says whether user space has the text of a print. A connection remembers the last ones itself.
static __always_inline bool is_told(struct conn *c, u64 print)
{
	u64 key = told_as(print, text_round);
	u64 *near = &c->told[key & 3];
	if (*near == key)
		return true;
	if (!bpf_map_lookup_elem(&texts, &key))
		return false;
	*near = key;
	return true;
}

// show sends what a print stands for to user space: the command and, if it has one, the key.
__noinline int show(struct conn *c, u64 print, u64 at, u64 size)
{
	if (!c)
		return 0;
	u32 round = text_round;
	if (is_told(c, print))
		return 0;
	struct text_record *r = NULL;
	if (!size || at)
		r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		lose(LOST_TEXTS);
		return 0;
	}
	__builtin_memset(&r->record, 0, sizeof(r->record));
	r->record.kind = RECORD_TEXT;
	r->record.pid = c->pid;
	r->record.key.cgroup = c->cgroup;
	r->record.key.print = print;
	r->record.key.who = c->who;
	r->record.at_ns = c->now;
	r->record.command = c->command.id;
	r->record.keyed = at != 0;
	u32 n = size > KEY_MOST ? KEY_MOST : size;
	r->record.text_size = n;
	r->record.text_whole = size > 0xffffffffULL ? 0xffffffff : size;
	if (!bounded(&n, KEY_MOST) || (n && bpf_probe_read_user(r->text, n, (void *)at))) {
		lose(LOST_TEXTS);
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return 0;
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	tell_no_more(print, round); // if that was another one meanwhile, it is sent again
	return 0;
}

#endif
