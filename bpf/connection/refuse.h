// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Connections that are refused because nobody listens.
#ifndef PLIMSOLL_CONNECTION_REFUSE_H
#define PLIMSOLL_CONNECTION_REFUSE_H

#include "life.h"

// Parts of headers, as the network has them.
struct tcp_begin {
	u16 source, dest;
	u32 seq, ack;
	u8 offset, flags;
};
enum { FLAG_SYN = 2, FLAG_ACK = 16 };
enum { AT_SOURCE4 = 12, AT_SOURCE6 = 8 }; // where a header of IP has the address of the sender

// refuse counts a connection that is answered with a reset for lack of a socket. Its sender may be made up, and so it gets no place: it is counted where its
// client has one, or with the rest.
static __noinline int refuse(u64 skb)
{
	u8 *head = NULL, version = 0;
	u16 transport = 0, network = 0;
	struct tcp_begin tcp = {};
	struct net_device *device = NULL;
	struct listener at = {};
	read_field(head, (struct sk_buff *)skb, head);
	read_field(transport, (struct sk_buff *)skb, transport_header);
	bpf_probe_read_kernel(&tcp, sizeof(tcp), head + transport);
	if ((tcp.flags & (FLAG_SYN | FLAG_ACK)) != FLAG_SYN)
		return 0;
	read_field(device, (struct sk_buff *)skb, dev);
	read_field(at.network, device, nd_net.net);
	at.port = __builtin_bswap16(tcp.dest);
	u64 *cgroup = bpf_map_lookup_elem(&listeners, &at);
	if (!cgroup)
		return 0;
	struct key key = {.cgroup = *cgroup}, rest = {.cgroup = *cgroup};
	read_field(network, (struct sk_buff *)skb, network_header);
	bpf_probe_read_kernel(&version, sizeof(version), head + network);
	if (version >> 4 == 4) {
		u32 address = 0;
		bpf_probe_read_kernel(&address, sizeof(address), head + network + AT_SOURCE4);
		map_into(&key, address);
	} else {
		bpf_probe_read_kernel(&key.client, sizeof(key.client), head + network + AT_SOURCE6);
	}
	u32 *found = bpf_map_lookup_elem(&places, &key);
	if (!found)
		found = bpf_map_lookup_elem(&places, &rest);
	struct counts *to = found ? bpf_map_lookup_elem(&counted, found) : NULL;
	if (to)
		__sync_fetch_and_add(&to->refused, 1);
	return 0;
}

#endif
