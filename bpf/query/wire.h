// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The walk over what was read or written: messages of PostgreSQL's protocol 3 are framed by their length, across any number of pieces.
// Bodies that tell nothing are stepped over without being read; the others are taken byte by byte.
#ifndef PLIMSOLL_QUERY_WIRE_H
#define PLIMSOLL_QUERY_WIRE_H

#include "units.h"

enum {
	ROUND = 16, // bytes that one round of a loop takes: a round has its price, and so has checking what a longer one may do
	MESSAGE_MOST = 1 << 30, // PostgreSQL's own bound (PQ_LARGE_MESSAGE_LIMIT is MaxAllocSize - 1)
	STARTUP_MOST = 10000,   // the same for a startup message (MAX_STARTUP_PACKET_LENGTH)
	CODE_SSL = 80877103,
	CODE_GSS = 80877104,
	CODE_CANCEL = 80877102,
};

// Where in a body we are. FIELD_SKIP is the rest of it, unread.
enum {
	FIELD_SKIP,
	FIELD_TEXT,      // of Query
	FIELD_NAME,      // of Parse: the statement's, then its text
	FIELD_NAMED_TEXT,
	FIELD_PORTAL,    // of Bind: the portal's, then the statement's
	FIELD_STATEMENT,
	FIELD_RUN,       // of Execute: the portal's
	FIELD_CODE,      // of the first message: the version or what is asked for instead
	FIELD_KEY,       // a parameter's name
	FIELD_USER,
	FIELD_DATABASE,
	FIELD_REPLICATION,
	FIELD_VALUE,     // of a parameter that does not matter
	FIELD_TAG,       // of CommandComplete
	FIELD_ERROR,     // an error's fields: the letter
	FIELD_SQLSTATE,
	FIELD_SEVERITY,
	FIELD_OTHER,
};

// look makes sure that the byte at the offset is in the window, and says where. It is WINDOW if the buffer cannot be read.
static __always_inline u32 look(struct conn *c)
{
	u32 at = c->off - c->base;
	if (at < c->filled && at < WINDOW)
		return at;
	u32 n = c->size - c->off;
	if (n > WINDOW)
		n = WINDOW;
	if (bpf_probe_read_user(c->window, n, (void *)(c->ptr + c->off))) {
		lose(LOST_FAULTS);
		resync(c);
		return WINDOW;
	}
	c->base = c->off;
	c->filled = n;
	return 0;
}

// seen is a byte of the window. The compiler must not check one register and use another, which the verifier does not follow.
static __always_inline u8 seen(struct conn *c, u32 at)
{
	asm volatile("" : "+r"(at));
	return at < WINDOW ? c->window[at] : 0;
}

// head takes bytes of a message's header and says how many, 0 if it cannot. Most headers lie in the window as a whole.
static __always_inline u32 head(struct conn *c, struct stream *s)
{
	u32 at = look(c);
	if (at >= WINDOW)
		return 0;
	if (s->have == 0 && at + 5 <= c->filled && at + 5 <= WINDOW) {
		u8 *w = c->window;
		s->type = w[at];
		s->length = (u32)w[at + 1] << 24 | (u32)w[at + 2] << 16 | (u32)w[at + 3] << 8 | w[at + 4];
		s->have = 5;
		c->off += 5;
		return 5;
	}
	u8 b = c->window[at];
	if (s->have == 0) {
		s->type = b;
		s->length = 0;
	} else {
		s->length = s->length << 8 | b;
	}
	s->have++;
	c->off++;
	return 1;
}

// skip steps over as much of a body as there is.
static __always_inline u32 skip(struct conn *c, struct stream *s)
{
	u32 n = c->size - c->off;
	if (n > s->left)
		n = s->left;
	c->off += n;
	s->left -= n;
	return n;
}

struct scan {
	struct conn *c;
	u64 hash;
	u64 ptr;
	u32 size;
};

// raw_step hashes the next window of a text, eight bytes at a time.
static long raw_step(u32 i, struct scan *s)
{
	struct conn *c = s->c;
	u32 from = i * WINDOW;
	if (from >= s->size)
		return 1;
	u32 n = s->size - from;
	if (n > WINDOW)
		n = WINDOW;
	if (bpf_probe_read_user(c->window, n, (void *)(s->ptr + from))) {
		s->size = 0;
		return 1;
	}
	u64 hash = s->hash;
	for (u32 k = 0; k < WINDOW / 8; k++) {
		if (k * 8 >= n)
			break;
		u64 word = *(u64 *)&c->window[k * 8];
		u32 more = n - k * 8;
		if (more < 8)
			word &= (1ULL << (more * 8)) - 1; // what an earlier window left behind
		hash = (hash ^ word) * 0x9fb21c651e98df25ULL;
		hash ^= hash >> 32;
	}
	s->hash = hash;
	return 0;
}

// recall finds the print of a text that lies in the buffer as a whole and has been seen before, byte for byte.
static __noinline int recall(struct conn *c, u32 size)
{
	c->raw = 0;
	if (size > RAW_MOST || size > c->size - c->off)
		return 0;
	struct scan s = {.c = c, .hash = size | (u64)text_round << 32, .ptr = c->ptr + c->off, .size = size};
	bpf_loop(RAW_MOST / WINDOW, raw_step, &s, 0);
	c->filled = 0; // the window holds something else now
	if (s.size != size)
		return 0;
	u64 raw = mix(s.hash);
	if (raw == c->last_raw) {
		c->print = c->last_print;
		return 1;
	}
	u64 *print = bpf_map_lookup_elem(&raws, &raw);
	if (print) {
		c->last_raw = raw;
		c->last_print = c->print = *print;
		return 1;
	}
	c->raw = raw;
	return 0;
}

// keep copies what this buffer holds of a text to the scrap of its connection, because the next read overwrites it.
static __noinline int keep(struct conn *c, u32 end)
{
	u32 where = c->pid % SCRAPS, before = c->text_before;
	struct scrap *s = bpf_map_lookup_elem(&scraps, &where);
	if (!s || end <= c->text_at)
		return 0;
	u32 n = end - c->text_at;
	c->text_before = before + n;
	if (s->owner != c->pid) {
		if (before || __sync_val_compare_and_swap(&s->owner, 0, c->pid))
			return 0; // begun elsewhere, or taken by another connection: the text is cut short
		s->size = 0;
	}
	// Only its owner writes to a scrap.
	if (s->size != before || before >= LONG_TEXT)
		return 0;
	if (n > LONG_TEXT - before)
		n = LONG_TEXT - before;
	if (!bounded(&n, LONG_TEXT))
		return 0;
	if (!bpf_probe_read_user(&s->text[before], n, (void *)(c->ptr + c->text_at)))
		s->size = before + n;
	return 0;
}

// fill copies a text into a record: from the buffer if it lies there as a whole, else from the scrap.
static __always_inline u32 fill(struct conn *c, char *to, u32 size, u32 most)
{
	if (size > most)
		size = most;
	if (!bounded(&size, most))
		return 0;
	if (!c->text_before)
		return bpf_probe_read_user(to, size, (void *)(c->ptr + c->text_at)) ? 0 : size;
	u32 where = c->pid % SCRAPS;
	struct scrap *s = bpf_map_lookup_elem(&scraps, &where);
	if (!s || s->owner != c->pid || s->size < size)
		return 0;
	return bpf_probe_read_kernel(to, size, s->text) ? 0 : size;
}

static __always_inline void title(struct conn *c, struct record *r, u32 size)
{
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = RECORD_TEXT;
	r->pid = c->pid;
	r->key.cgroup = c->cgroup;
	r->key.print = c->print;
	r->key.who = c->who;
	r->at_ns = c->now;
	r->text_whole = size;
}

// show sends a text that ends at this offset to user space and says whether that worked.
static __noinline int show(struct conn *c, u32 end)
{
	u32 size = c->text_before ? c->text_before : end - c->text_at;
	u32 got = 0;
	if (size <= SHORT_TEXT) {
		struct short_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
		if (r) {
			title(c, &r->record, size);
			got = fill(c, r->text, size, SHORT_TEXT);
			r->record.text_size = got;
			if (got)
				bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
			else
				bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		}
	} else {
		struct long_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
		if (r) {
			title(c, &r->record, size);
			got = fill(c, r->text, size, LONG_TEXT);
			r->record.text_size = got;
			if (got)
				bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
			else
				bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		}
	}
	if (!got)
		lose(LOST_TEXTS);
	return got != 0;
}

// hold keeps so many bytes of a text as they are, so that what they ask for can be told with its literals. Of Parse there may be more behind the
// text; it ends where a C string does.
static __noinline int hold(struct conn *c, u32 size)
{
	u32 pid = c->pid, zero = 0;
	c->held = 0;
	struct literal *l = bpf_map_lookup_elem(&literals, &pid);
	if (!l) {
		struct literal *none = bpf_map_lookup_elem(&no_literal, &zero);
		if (!none || bpf_map_update_elem(&literals, &pid, none, BPF_ANY)) {
			lose(LOST_LITERALS);
			return 0;
		}
		l = bpf_map_lookup_elem(&literals, &pid);
		if (!l)
			return 0;
	}
	u16 number = c->texts + 1;
	if (!number) // they wrap
		number = 1;
	c->texts = number;
	l->number = number;
	l->whole = size;
	l->size = fill(c, l->text, size, LONG_TEXT);
	if (l->size)
		c->held = number;
	else
		lose(LOST_LITERALS);
	return 0;
}

// text_begin tries to know the text as a whole; else it is lexed byte by byte.
static __noinline int text_begin(struct conn *c)
{
	c->text_at = c->off;
	c->text_before = 0;
	c->print = 0;
	if (recall(c, c->in.left)) {
		if (c->tells & TELL_LITERALS)
			hold(c, c->in.left);
		return FIELD_SKIP;
	}
	lex_start(&c->text);
	return FIELD_TEXT;
}

// text_end makes the print, and sends the text if user space does not know it.
static __noinline int text_end(struct conn *c)
{
	u64 print = lex_end(&c->text);
	c->print = print;
	u32 end = c->off - 1;
	u32 round = text_round;
	bool known = is_told(print), holds = c->tells & TELL_LITERALS;
	if (c->text_before && (!known || holds))
		keep(c, end);
	if (!known && (c->text_before || end > c->text_at)) {
		known = show(c, end);
		if (known)
			tell_no_more(print, round); // if that was another one meanwhile, it is sent again
	}
	if (holds)
		hold(c, c->text_before ? c->text_before : end - c->text_at);
	if (c->text_before)
		let_go(c);
	if (!known || !c->raw)
		return 0;
	c->last_raw = c->raw;
	c->last_print = print;
	// A text with literals hardly comes again; one without does.
	if (!c->text.literals)
		bpf_map_update_elem(&raws, &c->raw, &print, BPF_ANY);
	return 0;
}

#endif
