//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The connections of a database's clients over TCP. A connection is met when its handshake ends and left when its socket closes; what the socket counts
// itself (bytes, retransmitted segments, the round trip) is read then and whenever user space looks. Nothing runs for a packet or a statement.
//
// These programs run wherever the kernel is at work on a socket, mostly in the midst of some other process: whose a connection is comes from its
// socket. That has the cgroup of the socket which listened, and so of the process that made that one.
#include "refuse.h"
#include "tend.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// struct sock *sk, int oldstate, int newstate
SEC("raw_tracepoint/inet_sock_set_state")
int state_changes(u64 *ctx)
{
	u64 sk = ctx[0];
	u32 from = ctx[1], to = ctx[2];
	if (from == TCP_SYN_RECV && to == TCP_ESTABLISHED)
		return meet(sk, false);
	if (to == TCP_CLOSE)
		leave(sk, from);
	else if (to == TCP_LISTEN)
		listens(sk);
	else if (from == TCP_ESTABLISHED && !bpf_map_lookup_elem(&conns, &sk))
		unknown(sk);
	return 0;
}

// struct sock *sk. The kernel leaves a program out while it is at work on the same CPU already: an end that was missed so is seen here.
SEC("raw_tracepoint/tcp_destroy_sock")
int socket_goes(u64 *ctx)
{
	leave(ctx[0], TCP_CLOSE);
	return 0;
}

// struct sock *sk, struct sk_buff *skb, and more. Without a socket, kernels tell of it that are newer than 6.1.
SEC("raw_tracepoint/tcp_send_reset")
int resets(u64 *ctx)
{
	if (!ctx[0] && ctx[1])
		refuse(ctx[1]);
	return 0;
}

// struct bpf_iter_meta *meta, struct sock_common *sk, and more: each socket of a network namespace, which is locked meanwhile.
SEC("iter/tcp")
int found(void *ctx)
{
	u64 sk = 0;
	u8 state = 0;
	bpf_probe_read_kernel(&sk, sizeof(sk), ctx + 8); // as a number, not as a pointer that the verifier follows
	read_field(state, (struct sock___tcp *)sk, __sk_common.skc_state);
	if (state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING)
		meet(sk, true);
	else if (state == TCP_LISTEN)
		listens(sk);
	return 0;
}
