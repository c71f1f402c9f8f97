// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The values of this family: what user space reads (key, counts, record) and what a connection remembers between two system calls.
#ifndef PLIMSOLL_QUERY_TYPES_H
#define PLIMSOLL_QUERY_TYPES_H

#include "../include/core.h"

enum {
	WINDOW = 256,     // bytes of a user's buffer that are looked at in one go
	PIPELINE = 65536, // statements under way of one connection
	FIFO = 16,        // statements under way of one connection that need no memory elsewhere
	NAME = 64,        // a name of PostgreSQL with its end (NAMEDATALEN)
	SHORT_TEXT = 448, // a text that a small record holds
	LONG_TEXT = 4096, // a text that a large record holds; what is longer is cut, and said to be
	RAW_MOST = 1024,  // longest text that is first looked up by the hash of its very bytes
	BUCKETS = 208,    // of a histogram: 8 an octave, from 2^-20 s to 2^6 s, the last one for what is longer
};

// target is a container whose statements are measured, found by its cgroup's id.
struct target {
	u64 slow_ns;              // a statement that takes longer is told one by one; 0 for none
	u64 slow_due, failed_due; // when the next one is due at the rate at which they may be told (count.h)
	u16 port;                 // of its server, so that connections which its processes open to others are none of ours
	u8 tells;                 // what else is told, as bits
	u8 pad[5];
};

// What a target tells besides: statements that failed, and texts with their literals.
enum { TELL_FAILED = 1, TELL_LITERALS = 2 };

// key of what is counted together. nth counts the statements of one simple query: "SELECT 1; SELECT 2" is one text and two statements.
struct key {
	u64 cgroup;
	u64 print; // the text's fingerprint; 0 is what could not be told from the rest
	u64 who;   // user and database; 0 is not known
	u32 nth;
	u32 code; // SQLSTATE as a number in base 36; 0 is success ("00000")
};

// A place that is taken back is LEAVING until whoever had found it before is done with it and user space has read it.
enum life { VACANT, LIVE, LEAVING };

// counts of one key. Every field is added to atomically by any CPU and read by user space from a shared page, without a system call.
struct counts {
	struct key key;
	u64 live; // one of enum life, set after key
	u64 calls, rows, bytes_in, bytes_out;
	u64 latency_ns;  // sum over calls: read to last byte written, which is what the client waits for
	u64 queue_ns;    // of that, behind earlier statements of the same connection
	u64 service_ns;  // of that, to the first byte of the answer
	u64 transfer_ns; // of that, from the first to the last byte
	u64 slots[BUCKETS];
};

enum kind { RECORD_TEXT = 1, RECORD_SLOW, RECORD_FAILED };

// record of the ring buffers. text_size bytes of text follow it: of one that is slow or failed, only where literals are asked for.
struct record {
	u32 kind, pid;
	struct key key;
	u64 at_ns; // CLOCK_MONOTONIC, when it ended
	u64 latency_ns, queue_ns, service_ns, transfer_ns;
	u64 rows, bytes_in, bytes_out;
	u32 text_size, text_whole; // as copied, as sent
	u8 client[16];             // an address of IPv4 is written as one of IPv6
	u16 client_port;
	u16 family; // AF_*, 0 if nobody has seen the socket
	u32 pad;
};

struct short_record {
	struct record record;
	char text[SHORT_TEXT];
};
struct long_record {
	struct record record;
	char text[LONG_TEXT];
};

// literal is the last text of a connection, as its client sent it.
struct literal {
	u32 number; // of the text, among those of its connection
	u32 size;
	u32 whole;
	u32 pad;
	char text[LONG_TEXT];
};

// session is who spoke.
struct session {
	char user[NAME];
	char database[NAME];
	u64 used; // the last round of tending in which a connection or a place had it
};

// What was lost, and why. The order is known to query.go.
enum lost {
	LOST_CONNECTIONS, // no room for another connection
	LOST_UNSYNCED,    // bytes of a connection that was there before us, until its first answer ended
	LOST_FRAMING,     // a message that no client or server may send: the stream is followed again from the next end of an answer
	LOST_FAULTS,      // a buffer that could not be read
	LOST_KEYS,        // no room for another key: counted under the cgroup's print 0
	LOST_UNITS,       // a pipeline deeper than the memory for it: counted under print 0; one of 65,536 units is given up until its answer ends
	LOST_PREPARED,    // a prepared statement that nobody saw prepared, or that was forgotten: counted under print 0; or user space forgot its text
	LOST_TEXTS,       // a first text that found no room in the ring; it is tried again with the next statement of the kind
	LOST_RECORDS,     // a slow or failed statement that found no room in the ring; it is counted all the same
	LOST_ABORTED,     // a statement under way when its process ended
	LOST_SESSIONS,    // no room for another pair of user and database: counted under who 0
	LOST_NAMES,       // a prepared statement or portal whose name could not be kept: its statements are counted under print 0
	LOST_UNCOUNTED,   // a statement of a container that is measured no longer
	LOST_SUPPRESSED,  // a slow or failed statement beyond the rate at which those of a container are told; it is counted all the same
	LOST_LITERALS,    // a text that is told without its literals, because it found no room or a later one has its place
	LOST_REASONS,
};

// unit is something that the client asked for and the server has still to answer. UNIT_RESUMED is an Execute of a portal that was executed before:
// the statement is counted already, and only its rows are not.
enum unit_kind { UNIT_UNKNOWN, UNIT_QUERY, UNIT_EXECUTE, UNIT_PARSE, UNIT_SYNC, UNIT_CALL, UNIT_COPIED, UNIT_DROPPED, UNIT_RESUMED };
struct unit {
	u64 print;
	u64 read_ns;
	u64 bytes;
	u32 seq; // numbers wrap: only their equality and distance matter
	u16 kind;
	u16 text; // the number of its text as the client sent it, 0 if that is not kept
};

// stream is one direction of a connection: where in which message we are.
struct stream {
	u32 left;   // bytes of the body still to come
	u32 length; // of the message, as its header says
	u8 have;    // bytes of the header in hand
	u8 type;
	u8 field; // of the body
	u8 sub;   // of the field
	u64 bytes; // since the last unit
};

// lexed is the state of the fingerprint, byte by byte (text.h).
struct lexed {
	u64 hash;
	u32 literals, folded, depth;
	u8 state, list, gap;
	u8 escapes; // of the string at hand; the word at hand is E
	u8 zero;    // the number at hand is 0
	u8 pad[3];
};

// Who hands us a connection's bytes: the system calls, or the functions behind which they are sealed (TLS, GSSAPI).
enum { FED_BY_SYSCALLS, FED_BY_UPROBES };
enum {
	PHASE_FRESH,    // nothing seen yet
	PHASE_UNSYNCED, // in the midst of something: wait for the end of an answer
	PHASE_STARTUP,  // the first message is to come, which has no type
	PHASE_ASKED,    // the client wishes to be sealed
	PHASE_LOGIN,    // the client has said who it is, and the server has not let it in: messages are framed, and nothing of them is taken
	PHASE_READY,
	PHASE_OTHER, // replication, a cancel request: not for us
};

// conn is one backend of PostgreSQL, which serves one client in one thread: nobody else touches this, so nothing here is atomic. A
// process with more threads has no connection that passes the check of its socket, and so nothing of it but the notes of the hooks is used.
struct conn {
	u64 cgroup, who, born;
	u32 pid;
	s32 fd; // of the client's socket, -1 before it is known
	u8 feeder, phase;
	u8 skipping; // an error was answered: the server ignores all until Sync
	u8 copying;  // the server reads copy data and ignores Sync
	u8 open;     // messages of the extended protocol since the last Sync
	u8 counted;  // the bytes of this simple query
	u8 fatal;
	u8 tells;    // of its container
	u32 cookie; // of the program that fed this last, 0 if none did
	u32 watched; // watch_round as it was when this last looked at its container
	u32 nth;  // statements that this simple query has completed
	u32 code; // SQLSTATE in base 36

	// What the hooks noted at the begin of the calls under way: buffers, 0 for none.
	u64 read_at, sent_at, sealed_at, sent_ns;
	s32 read_fd;

	struct stream in, out;
	u64 copied; // bytes of copy data

	u8 client[16];    // as in a record
	u16 client_port, family;
	u16 texts;        // numbers of texts that were kept with their literals
	u16 held;         // that of the message at hand
	u64 parsed_name;  // hash of the name of the statement that was parsed last
	u16 parsed, bound; // the number of its text, and of what the last portal was bound to
	u32 spare;

	u64 slow_ns;   // of its container
	u32 last_place; // of what was counted last

	u64 done_ns;  // end of the last unit
	u64 first_ns; // first byte of an answer since then
	u64 rows, seen_rows;

	u64 subject;                 // print of what was parsed or bound last
	u64 unnamed, unnamed_portal; // prints of the statement and the portal without names
	u64 name, portal;            // hashes of names being read
	u64 last_name, last_named;   // the last statement with a name, and its print
	u64 wanted;                  // hash of the name of a statement that was prepared before anybody looked, whose text is to come
	u32 wanted_at, reported;     // how many texts the server reports of this buffer until it is that one's, and how many it has
	u32 ahead, ran;              // messages of this buffer so far that it reports a text of, and those that it executes
	u64 print;                   // of the text of this message
	u64 raw;                     // hash of the very bytes of the text at hand, 0 if it came in pieces
	u64 last_raw, last_print;    // of the last text
	struct lexed text;
	u32 text_at;     // where in this buffer the text begins
	u32 text_before; // bytes of it in earlier buffers

	u32 head, tail; // of the FIFO
	struct unit units[FIFO];

	// The buffer that is walked over, and the part of it that is copied here. It is memory of the connection and not of the CPU, because
	// a uprobe's program may be preempted by that of another backend.
	u64 ptr, now;
	u32 size, off, base, filled;
	struct session session;
	u8 window[WINDOW];
};

#endif
