// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The values of this family: what user space reads (key, counts) and what is remembered of a connection while it is open.
#ifndef PLIMSOLL_CONNECTION_TYPES_H
#define PLIMSOLL_CONNECTION_TYPES_H

#include "socket.h"

enum {
	BUCKETS = 80, // of a histogram: 4 an octave, from 2^-17 s to 2^3 s, the last one also for what is longer
	LOWEST = 17,
};

// target is a container whose server's connections are measured, found by its cgroup's id.
struct target {
	u16 port;
	u16 pad[3];
};

// listener is where a measured server listens, or did.
struct listener {
	u64 network; // address of the namespace in the kernel
	u16 port;
	u16 pad[3];
};

// key of what is counted together.
struct key {
	u64 cgroup;
	struct {
		u8 bytes[16]; // an address of IPv4 is mapped into IPv6; all 0 is the rest: clients that found no place of their own
	} client;
};

// A place that is taken back is LEAVING until whoever had found it before is done with it, its connections are over and user space has read it.
enum life { VACANT, LIVE, LEAVING };

// counts of one key. Every field is added to atomically by any CPU and read by user space from a shared page, without a system call. Open now
// is found + opened - closed - reset - timed_out.
struct counts {
	struct key key;
	u64 live; // one of enum life, set after key
	u64 found, opened;
	u64 closed, reset, timed_out;
	u64 refused; // nobody listened: these were never open
	u64 bytes_in, bytes_out, retransmits;
	u64 round_trip_ns; // sum over slots
	u64 slots[BUCKETS];
};

// conn is a connection that is open. What the socket counts itself is taken over from time to time, and when it ends: these are the sums that were
// taken over so far, each with a mark of this connection in its highest byte (MARK), so that who still holds the memory of a connection that is
// over cannot add to what the next one there has.
struct conn {
	u32 place;
	u16 port; // of the client, as it stands in the socket
	u16 pad;
	u64 in, out, again;
};
enum { MARK = 56, OVER = 255 }; // OVER is no connection's mark

// Why a connection is not counted, or not in full: reasons of Lost in read.go.
enum lost {
	LOST_CONNECTIONS, // no room for one more
	LOST_CLIENTS,     // no place for its client: it is counted with the rest of its container
	LOST_UNCOUNTED,   // not even that
	LOST_BEGINS,      // it was neither seen to begin nor found open, and ends
	LOST_ENDS,        // nobody saw its end
	LOST_LISTENERS,   // no room for where one more server listens: what is refused there is not counted
	LOST_REASONS,
};

#endif
