// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The values of this family: what user space reads (key, counts, record) and what a connection remembers between two system calls.
#ifndef PLIMSOLL_REDIS_TYPES_H
#define PLIMSOLL_REDIS_TYPES_H

#include "../include/core.h"

enum {
	WINDOW = 256,    // bytes of a user's buffer that are looked at in one go
	PIPELINE = 16384, // runs of like commands under way of one connection
	FIFO = 8,        // runs that need no memory elsewhere
	USER = 64,       // a user's name with its end; what is longer is cut
	KEY_MOST = 128,  // bytes of a key that make its pattern
	NAME_MOST = 32,  // longest name of a command; what is longer is none
	WORD_MOST = 32,  // longest word of a key that counts as it stands
	BUCKETS = 208,   // of a histogram: 8 an octave, from 2^-20 s to 2^6 s, the last one for what is longer
	MARKS = 4096,    // by the low bits of a cgroup's id
};

// target is a container whose commands are measured, found by its cgroup's id.
struct target {
	u64 slow_ns; // a command that takes longer is told one by one, and so is each that failed; 0 for none
	u16 ports[2]; // of its server, plain and TLS, so that other sockets of the container are none of ours
	u16 pad[2];
};

// key of what is counted together.
struct key {
	u64 cgroup;
	u64 print; // of the command and its key's pattern; 0 is what could not be told from the rest
	u64 who;   // user and database; 0 is not known
	u32 nth;   // always 0: a command is one statement
	u32 code;  // of the error; 0 is success
};

// A place that is taken back is LEAVING until whoever had found it before is done with it and user space has read it.
enum life { VACANT, LIVE, LEAVING };

// counts of one key. Every field is added to atomically by any CPU and read by user space from a shared page, without a system call.
struct counts {
	struct key key;
	u64 live; // one of enum life, set after key
	u64 calls, rows, bytes_in, bytes_out;
	u64 latency_ns;  // sum over calls: read to last byte written, which is what the client waits for
	u64 queue_ns;    // of that, behind earlier commands of the same connection
	u64 service_ns;  // of that, to the first byte of the answer
	u64 transfer_ns; // of that, from the first to the last byte
	u64 slots[BUCKETS];
};

enum kind { RECORD_TEXT = 1, RECORD_SLOW, RECORD_FAILED };

// record of the ring buffer. text_size bytes of a key follow it.
struct record {
	u32 kind, pid;
	struct key key;
	u64 at_ns; // CLOCK_MONOTONIC
	u64 latency_ns, bytes_in, bytes_out;
	u32 command;               // its number in the table of user space
	u32 keyed;                 // the command has a key
	u32 text_size, text_whole; // as copied, as sent
};

struct text_record {
	struct record record;
	char text[KEY_MOST];
};

// session is who spoke, and to which database.
struct session {
	char user[USER];
	u32 database;
	u32 pad;
	u64 used; // the last round of tending in which a connection or a place had it
};

// command is what user space says of a name. What begins with it takes part in how the connection goes on.
enum command_kind {
	COMMAND_PLAIN,
	COMMAND_AUTH,
	COMMAND_HELLO,
	COMMAND_SELECT,
	COMMAND_RESET,
	COMMAND_EXEC,
	COMMAND_DISCARD,
	COMMAND_SUBSCRIBE, // and its like: answered by pushes
	COMMAND_MONITOR,
	COMMAND_REPLICA, // SYNC, PSYNC: the connection is a replica's from here on
	COMMAND_REPLY,   // CLIENT REPLY, after which answers may be left out
	COMMAND_MESSAGE, // no command: the first word of what is pushed
};
enum { COMMAND_CONTAINS = 1, COMMAND_BLOCKS = 2, COMMAND_COUNTS_KEYS = 4 };
enum { KEY_AFTER_STREAMS = 255 }; // XREAD ... STREAMS key
struct command {
	u16 id; // 0 is none
	u8 kind;
	u8 key;   // which argument is the first key, 0 for none
	u8 flags; // contains subcommands; may wait for others; the argument before the keys says how many they are
	u8 pad[3];
};

// What was lost, and why. The order is known to read.go.
enum lost {
	LOST_CONNECTIONS, // no room for another connection or thread
	LOST_UNSYNCED,    // a read of a connection that was there before us, until a command begins after an answer
	LOST_FRAMING,     // bytes that no client or server may send: the stream is followed again as one that was there before
	LOST_FAULTS,      // a buffer that could not be read
	LOST_KEYS,        // no room for another key: counted under the cgroup's print 0
	LOST_UNITS,       // a command of a pipeline deeper than the memory for it: counted under print 0; one that changes its connection gives the stream up
	LOST_TEXTS,       // a first text that found no room in the ring, or came in pieces; it is tried again with the next command of the kind
	LOST_RECORDS,     // a slow or failed command that found no room in the ring; it is counted all the same
	LOST_ABORTED,     // a connection that ended with commands under way
	LOST_SESSIONS,    // no room for another pair of user and database: counted under who 0
	LOST_UNCOUNTED,   // a command of a container that is measured no longer
	LOST_REASONS,
};

// unit is a run of commands that the client asked for and the server has still to answer, all of which are alike and were read at once.
struct unit {
	u64 print;
	u64 read_ns; // 0 if their wait is not the server's time
	u64 bytes;   // of all
	u32 n;
	u32 seq; // numbers wrap: only their equality and distance matter
	u16 kind, arg;
	u16 command;
	u16 pad;
	u32 more; // commands behind it that found no room
	u32 pad2;
};

// A connection has two FIFOs: of what is to be answered, and of what MULTI has queued, whose answers are in that of EXEC.
enum { ASKED, QUEUED, FIFOS };

// batch gathers what of one buffer counts alike.
struct batch {
	u64 print, who;
	u32 code, calls;
	u64 bytes_in, bytes_out;
	u64 timed; // calls whose begin was seen, all of which took each
	u64 each, queue, service, transfer;
};

// pattern is the state of a key's pattern, byte by byte (pattern.h).
struct pattern {
	u64 hash, word;
	u32 size, length; // of the key so far, of the word at hand
	u8 state;
	u8 pad[7];
};

// request is the client's direction: where in which command we are.
struct request {
	u64 left;   // bytes of the argument still to come
	u64 number; // being read
	u64 bytes;  // of the command
	u32 args;   // still to come; of an inline command nobody knows
	u32 at;     // which argument
	u8 state, field, negative, quote;
	u8 expect;  // what the next argument is, as an option said
	u8 blocks, mute, skip; // this command waits; answers are left out, of all or of the next
	u32 length; // of the word at hand
	u32 arg;
};

// answer is the server's direction.
struct answer {
	u64 left, number;
	u64 pending; // elements still to come of the frame at hand
	u64 members; // answers still to come of those within EXEC's
	u64 word;
	u64 bytes; // since the last command ended
	u8 state, type, top, negative;
	u8 reads;  // the first word of what may be pushed
	u8 inside; // of EXEC
	u8 deep;   // within an array
	u8 pad;
	u32 code;
	u32 pad2;
};

// Who hands us a connection's bytes: the system calls, or the functions of libssl behind which they are sealed.
enum { FED_BY_SYSCALLS, FED_BY_UPROBES };
enum {
	PHASE_FRESH,    // it was accepted, and nothing was read yet
	PHASE_UNSYNCED, // in the midst of something
	PHASE_READY,
	PHASE_OTHER, // a replica's link, a monitor, the bus of a cluster: not for us
};

// conn is one socket of a server. One thread at a time reads or writes it, so nothing here is atomic.
struct conn {
	u64 cgroup, who, born;
	u64 ssl;     // the object of libssl that seals it, 0 if none does
	u64 slow_ns; // of its container
	u32 pid;
	s32 fd;
	u32 watched;    // watch_round as it was when this last looked at its container
	u32 cookie;     // of the program that fed this last, 0 if none did
	u32 last_place; // of what was counted last
	u8 feeder, phase;
	u8 answered;   // an answer was written since this is unsynced
	u8 subscribed; // what is pushed may come
	u8 resp3;      // and is told apart from answers
	u8 pad[3];

	struct request in;
	struct answer out;
	u64 name;           // hash of a command's name
	u64 last_name;      // of the command that was looked up last
	struct command last, command;
	u64 print;
	u64 word;
	struct pattern key;
	u64 key_at; // where in the user's memory the key begins, 0 if it came in pieces
	u64 key_size;
	u64 told[4];

	u64 done_ns;  // end of the last command
	u64 first_ns; // first byte of an answer since then
	struct batch batch;

	u32 head[FIFOS], tail[FIFOS];
	struct unit units[FIFOS][FIFO];

	// The buffer that is walked over, and the part of it that is copied here.
	u64 ptr, now;
	u32 size, off, base, filled;
	struct session session;
	char asks_user[USER]; // of AUTH and HELLO, until the server lets it in
	u8 window[WINDOW];
};

// thread is what the hooks noted of the calls under way of one thread.
struct thread {
	u64 read_at, write_at, write_ns;
	u64 ssl, ssl_at, ssl_got; // of libssl's function at work: its object, its buffer, and where it puts how much it took
	u64 ssl_ns;
	s32 fd;
	u32 vectors; // write_at is so many vectors, 0 if it is the buffer
};

#endif
