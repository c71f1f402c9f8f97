// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What this family reads of a TCP socket, by name. What stands behind ___ is left out when a name is looked up in the kernel: core.h has less of
// the same structures.
#ifndef PLIMSOLL_CONNECTION_SOCKET_H
#define PLIMSOLL_CONNECTION_SOCKET_H

#include "../include/core.h"

struct net;
typedef struct {
	struct net *net;
} possible_net_t;
struct sock_common___tcp {
	possible_net_t skc_net;
	u32 skc_daddr;
	u16 skc_dport, skc_num, skc_family;
	u8 skc_state;
	u64 skc_flags;
	struct in6_addr skc_v6_daddr;
} RELOCATED;
struct kernfs_node {
	u64 id;
} RELOCATED;
struct cgroup {
	struct kernfs_node *kn;
} RELOCATED;
struct sock_cgroup_data {
	struct cgroup *cgroup; // of version 2
} RELOCATED;
struct sock___tcp {
	struct sock_common___tcp __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	s32 sk_err;
} RELOCATED;
struct net_device {
	possible_net_t nd_net;
} RELOCATED;
struct sk_buff {
	struct net_device *dev;
	u8 *head;
	u16 transport_header, network_header;
} RELOCATED;
struct tcp_sock {
	u64 bytes_received, bytes_sent, bytes_retrans;
	u32 srtt_us; // of eighths of a microsecond
	u32 total_retrans;
} RELOCATED;

enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT,
	TCP_SYN_RECV,
	TCP_FIN_WAIT1,
	TCP_FIN_WAIT2,
	TCP_TIME_WAIT,
	TCP_CLOSE,
	TCP_CLOSE_WAIT,
	TCP_LAST_ACK,
	TCP_LISTEN,
	TCP_CLOSING,
};
enum { SOCK_DONE = 1 };                     // the bit of skc_flags that says that the other side's FIN has come
enum { EEXIST = 17, ECONNRESET = 104, ETIMEDOUT = 110 };

#endif
