//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The statements of PostgreSQL servers, measured from the kernel. What a backend reads from its client and writes to it is seen where it
// is plain: at recvfrom and sendto, or, if the connection is sealed with TLS, at the server's own secure_read and secure_write. Counts
// are kept here and read as memory; only texts seen for the first time and statements that are slow or failed are told one by one.
#include "answer.h"
#include "before.h"
#include "tend.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// first_feeder is who feeds a connection of which nothing is known: uprobes, if the system calls could not be hooked.
const volatile u8 first_feeder = FED_BY_SYSCALLS;

// A use of the type, so that its declaration for Go can be made.
const struct record *record_type __attribute__((unused));

// Rounds of the walk over one buffer. A large body is stepped over in one, and PostgreSQL's own buffers have 8 KiB.
enum { ROUNDS_MOST = 1 << 22 };

static __always_inline void begin(struct conn *c, u64 ptr, u32 size, u64 now)
{
	c->ptr = ptr;
	c->size = size;
	c->now = now;
	c->off = c->base = c->filled = 0;
}

static __always_inline u32 rounds(struct conn *c)
{
	return c->size > ROUNDS_MOST ? ROUNDS_MOST : c->size;
}

// walked gives a stream up if its buffer took more rounds than there are.
static __always_inline void walked(struct conn *c)
{
	if (!follows(c) || c->off >= c->size)
		return;
	lose(LOST_FRAMING);
	resync(c);
}

static __always_inline void await_startup(struct conn *c)
{
	c->phase = PHASE_STARTUP;
	c->in.have = 1;
	c->in.type = 0;
	c->in.length = 0;
}

// Records of TLS: what a handshake says, and its alerts, changes of the cipher and data.
enum { TLS_CIPHER = 0x14, TLS_ALERT, TLS_HANDSHAKE, TLS_DATA };

// begins says whether so many bytes, eight at most, may begin a startup message: a length, and a version or what is asked for instead.
static __always_inline bool begins(const u8 *b, u32 size)
{
	u32 length = (u32)b[0] << 24 | (u32)b[1] << 16 | (u32)b[2] << 8 | b[3];
	u32 code = (u32)b[4] << 24 | (u32)b[5] << 16 | (u32)b[6] << 8 | b[7];
	if (size < 8)
		return !b[0] && length <= STARTUP_MOST;
	return length >= 8 && length <= STARTUP_MOST && (code >> 16 == 3 || code == CODE_SSL || code == CODE_GSS || code == CODE_CANCEL);
}

// is_record says whether a system call reads a record of TLS that begins with these two bytes. No message begins so: their types are letters.
static __always_inline bool is_record(struct conn *c, const u8 *b)
{
	return c->feeder == FED_BY_SYSCALLS && b[0] >= TLS_CIPHER && b[0] <= TLS_DATA && b[1] <= 3;
}

// turns_out says whether a connection of which nothing is known yet is sealed after all: what was met of it first was the rest of a record, as OpenSSL
// reads a record's head and its rest by a call each.
static __always_inline bool turns_out(struct conn *c)
{
	u8 b[2] = {};
	if (c->size < sizeof(b) || bpf_probe_read_user(b, sizeof(b), (void *)c->ptr) || !is_record(c, b))
		return false;
	c->feeder = FED_BY_UPROBES;
	return true;
}

// meet decides by the first bytes of a connection, and says whether they are its messages. A startup message is known by its length and its code,
// a record of TLS by its type and version; what begins with neither was there before. A client that does not ask for TLS first begins with a
// handshake (sslnegotiation=direct): both hooks see that, as the server's function reads its first byte before it knows.
static __always_inline bool meet(struct conn *c)
{
	u8 b[8] = {};
	u32 size = c->size;
	if (size > sizeof(b))
		size = sizeof(b);
	if (!bounded(&size, sizeof(b)) || bpf_probe_read_user(b, size, (void *)c->ptr)) {
		lose(LOST_FAULTS);
		c->phase = PHASE_UNSYNCED;
		return true;
	}
	if (b[0] == TLS_HANDSHAKE && b[1] <= 3) {
		c->feeder = FED_BY_UPROBES;
		c->sealed_at = 0; // of the call that is reading this now
		await_startup(c);
		return false;
	}
	if (is_record(c, b)) {
		c->feeder = FED_BY_UPROBES;
		return false;
	}
	if (begins(b, size))
		await_startup(c);
	else
		c->phase = PHASE_UNSYNCED;
	return true;
}

// was_read takes what a backend has read.
static __noinline int was_read(struct conn *c, u64 ptr, u32 size, u64 now)
{
	begin(c, ptr, size, now);
	c->wanted = 0; // it reads on when it is done with what it read before
	c->ahead = c->ran = c->reported = 0;
	if (c->phase == PHASE_FRESH && !meet(c))
		return 0;
	if (c->phase == PHASE_ASKED)
		c->phase = PHASE_STARTUP; // nobody saw the answer, and the client goes on
	if (c->phase == PHASE_UNSYNCED) {
		if (turns_out(c))
			return 0;
		lose(LOST_UNSYNCED);
	}
	if (!follows(c) && c->phase != PHASE_STARTUP)
		return 0;
	struct scan s = {.c = c};
	bpf_loop(rounds(c), request_step, &s, 0);
	walked(c);
	if (c->in.have == 5 && c->in.field == FIELD_TEXT && c->in.left) {
		keep(c, c->size);
		c->text_at = 0;
	}
	return 0;
}

// sync looks for the end of an answer: ReadyForQuery is the last thing that a server says before it waits.
static __always_inline void sync(struct conn *c)
{
	u8 b[6] = {};
	if (c->size < sizeof(b) || bpf_probe_read_user(b, sizeof(b), (void *)(c->ptr + c->size - sizeof(b))))
		return;
	if (b[0] != 'Z' || b[1] || b[2] || b[3] || b[4] != 5)
		return;
	if (!c->who)
		met_late(c);
	c->phase = PHASE_READY;
	pop_until(c, 0);
	c->in.have = c->out.have = 0;
	c->in.bytes = c->copied = 0;
	c->skipping = c->open = 0;
	ready(c);
}

// was_sent takes what a backend has written.
static __noinline int was_sent(struct conn *c, u64 ptr, u32 size, u64 now)
{
	begin(c, ptr, size, now);
	if (c->phase == PHASE_ASKED) {
		u8 b = 0;
		bpf_probe_read_user(&b, 1, (void *)ptr);
		if (b == 'S' || b == 'G')
			c->feeder = FED_BY_UPROBES;
		await_startup(c);
		return 0;
	}
	if (c->phase == PHASE_FRESH)
		c->phase = PHASE_UNSYNCED;
	if (c->phase == PHASE_UNSYNCED)
		sync(c);
	else if (follows(c)) {
		struct scan s = {.c = c};
		bpf_loop(rounds(c), answer_step, &s, 0);
		walked(c);
	}
	return 0;
}

// conn_of makes a connection for a process of a measured container.
static __always_inline struct conn *conn_of(u32 pid, u64 cgroup)
{
	u32 zero = 0, round = watch_round;
	struct conn *c = bpf_map_lookup_elem(&blank, &zero);
	struct target *target = bpf_map_lookup_elem(&targets, &cgroup);
	if (!c || !target)
		return NULL;
	if (bpf_map_update_elem(&conns, &pid, c, BPF_NOEXIST)) {
		lose(LOST_CONNECTIONS);
		return NULL;
	}
	c = bpf_map_lookup_elem(&conns, &pid);
	if (!c)
		return NULL;
	c->born = bpf_ktime_get_ns();
	c->pid = pid;
	c->cgroup = cgroup;
	c->fd = -1;
	c->feeder = first_feeder;
	c->watched = round;
	c->slow_ns = target->slow_ns;
	c->tells = target->tells;
	return c;
}

static __always_inline struct conn *known(void)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	return bpf_map_lookup_elem(&conns, &pid);
}

// forget is called by the process itself, or in its last moments.
static __always_inline void forget(struct conn *c, u32 pid)
{
	if (pop_until(c, KIND(UNIT_QUERY) | KIND(UNIT_EXECUTE)))
		lose(LOST_ABORTED);
	pop_until(c, 0); // its spilled units
	let_go(c);
	if (c->texts)
		bpf_map_delete_elem(&literals, &pid);
	bpf_map_delete_elem(&conns, &pid);
}

// still says whether a connection's container is measured still, and forgets the connection if not.
static __noinline int still(struct conn *c)
{
	u32 round = watch_round;
	u64 cgroup = c->cgroup;
	struct target *target = bpf_map_lookup_elem(&targets, &cgroup);
	if (target) {
		c->slow_ns = target->slow_ns;
		c->tells = target->tells;
		if (!(c->tells & TELL_LITERALS))
			c->held = c->parsed = c->bound = 0;
		c->watched = round;
		return 1;
	}
	forget(c, c->pid);
	return 0;
}

// current_conn is the connection of a process that begins to read.
static __always_inline struct conn *current_conn(void)
{
	struct conn *c = known();
	if (c)
		return c->watched == watch_round || still(c) ? c : NULL;
	u64 cgroup = bpf_get_current_cgroup_id();
	if (!bpf_map_lookup_elem(&targets, &cgroup))
		return NULL;
	return conn_of(bpf_get_current_pid_tgid() >> 32, cgroup);
}

// meets notes who is at the other end of a socket.
static __always_inline void meets(struct conn *c, struct sock *sk, u16 family)
{
	u16 port = 0;
	read_field(port, sk, __sk_common.skc_dport);
	c->client_port = port >> 8 | port << 8;
	c->family = family;
	if (family == AF_INET6) {
		bpf_probe_read_kernel(c->client, sizeof(c->client), __builtin_preserve_access_index(&sk->__sk_common.skc_v6_daddr));
		return;
	}
	u32 address = 0;
	read_field(address, sk, __sk_common.skc_daddr);
	__builtin_memset(c->client, 0, sizeof(c->client));
	c->client[10] = c->client[11] = 0xff;
	__builtin_memcpy(&c->client[12], &address, sizeof(address));
}

// serves says whether a descriptor is a socket on which this process is the server: of the port of its container, or a local one that was
// accepted (which has the name of its listener, while a client's has none). A backend may be a client of others too.
static __noinline int serves(struct conn *c, s32 fd, u16 port)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct files_struct *files = NULL;
	struct fdtable *table = NULL;
	struct file **list = NULL, *file = NULL;
	struct socket *socket = NULL;
	struct sock *sk = NULL;
	u32 most = 0;
	u16 family = 0, local = 0;
	void *name = NULL;
	read_field(files, task, files);
	read_field(table, files, fdt);
	read_field(most, table, max_fds);
	read_field(list, table, fd);
	if (fd < 0 || fd >= most)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), list + fd);
	read_field(socket, file, private_data);
	read_field(sk, socket, sk);
	read_field(family, sk, __sk_common.skc_family);
	if (family == AF_INET || family == AF_INET6) {
		read_field(local, sk, __sk_common.skc_num);
		if (local != port)
			return 0;
		meets(c, sk, family);
		return 1;
	}
	if (family != AF_UNIX)
		return 0;
	read_field(name, (struct unix_sock *)sk, addr);
	if (!name)
		return 0;
	c->family = family;
	return 1;
}

// ours says whether a call of this process is one on its client's socket. That it succeeded shows that it is a socket.
static __always_inline bool ours(struct conn *c, s32 fd)
{
	if (c->fd >= 0)
		return c->fd == fd;
	struct target *target = bpf_map_lookup_elem(&targets, &c->cgroup);
	if (!target || !serves(c, fd, target->port))
		return false;
	c->fd = fd;
	return true;
}

SEC("tracepoint/syscalls/sys_enter_recvfrom")
int recv_begins(struct syscall_enter *ctx)
{
	if (ctx->args[3] & MSG_PEEK)
		return 0;
	struct conn *c = current_conn();
	if (!c || c->feeder != FED_BY_SYSCALLS)
		return 0;
	c->read_fd = ctx->args[0];
	c->read_at = ctx->args[1];
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_recvfrom")
int recv_ends(struct syscall_exit *ctx)
{
	struct conn *c = known();
	if (!c || !c->read_at)
		return 0;
	u64 ptr = c->read_at;
	c->read_at = 0;
	if (ctx->ret > 0 && ours(c, c->read_fd))
		was_read(c, ptr, ctx->ret, bpf_ktime_get_ns());
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_sendto")
int send_begins(struct syscall_enter *ctx)
{
	struct conn *c = known();
	if (!c || c->feeder != FED_BY_SYSCALLS || c->fd != (s32)ctx->args[0])
		return 0;
	c->sent_at = ctx->args[1];
	c->sent_ns = bpf_ktime_get_ns(); // the client may have its answer before the call returns
	return 0;
}

// The result says how much was taken: a socket may take a part, and the server then sends the rest.
SEC("tracepoint/syscalls/sys_exit_sendto")
int send_ends(struct syscall_exit *ctx)
{
	struct conn *c = known();
	if (!c || !c->sent_at)
		return 0;
	u64 ptr = c->sent_at;
	c->sent_at = 0;
	if (ctx->ret > 0)
		was_sent(c, ptr, ctx->ret, c->sent_ns);
	return 0;
}

// is_sealed says whether the server's functions feed a connection. Each time that a program is attached to has a cookie of its own: if a connection
// has another, what it said meanwhile is not known, and so it is followed anew.
static __always_inline bool is_sealed(struct conn *c, void *ctx)
{
	if (c->feeder != FED_BY_UPROBES)
		return false;
	u32 cookie = bpf_get_attach_cookie(ctx);
	if (c->cookie != cookie) {
		if (c->cookie && c->phase != PHASE_OTHER)
			resync(c);
		c->cookie = cookie;
	}
	return true;
}

// ssize_t secure_read(Port *port, void *ptr, size_t len)
SEC("uprobe/secure_read")
int sealed_read_begins(struct pt_regs *ctx)
{
	struct conn *c = current_conn();
	if (!c)
		return 0;
	c->sealed_at = ARG2(ctx);
	// Where system calls are hooked, the socket is known by them. Else it is the first thing that a Port says.
	s32 fd = -1;
	if (first_feeder == FED_BY_UPROBES && c->fd < 0 && !bpf_probe_read_user(&fd, sizeof(fd), (void *)ARG1(ctx)))
		ours(c, fd);
	return 0;
}

SEC("uretprobe/secure_read")
int sealed_read_ends(struct pt_regs *ctx)
{
	struct conn *c = known();
	if (!c || !c->sealed_at)
		return 0;
	u64 ptr = c->sealed_at;
	c->sealed_at = 0;
	s64 size = RESULT(ctx);
	if (size > 0 && is_sealed(c, ctx))
		was_read(c, ptr, size, bpf_ktime_get_ns());
	return 0;
}

// ssize_t secure_write(Port *port, void *ptr, size_t len): in a backend that serves statements it returns when all is written, because
// OpenSSL is not allowed to write a part; so its begin is enough.
SEC("uprobe/secure_write")
int sealed_write(struct pt_regs *ctx)
{
	struct conn *c = known();
	if (c && is_sealed(c, ctx))
		was_sent(c, ARG2(ctx), ARG3(ctx), bpf_ktime_get_ns());
	return 0;
}

// void pgstat_report_activity(BackendState state, const char *text): what the server is at work on; without a text if it rests. This is probed only
// while statements come whose preparation nobody saw.
SEC("uprobe/pgstat_report_activity")
int text_reported(struct pt_regs *ctx)
{
	struct conn *c = known();
	if (c && c->wanted && ARG2(ctx))
		learned(c, ARG2(ctx), bpf_ktime_get_ns());
	return 0;
}

SEC("raw_tracepoint/sched_process_exit")
int process_exits(void *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 pid = id >> 32;
	if (pid != (u32)id)
		return 0; // a thread
	struct conn *c = bpf_map_lookup_elem(&conns, &pid);
	if (c)
		forget(c, pid);
	return 0;
}

// drive lets tests hand over bytes of their own at times of their own: the walk that is measured with is the walk that is tested.
// Arguments: what (0 read, 1 sent, 2 exit, 3 a text is reported), connection, cgroup, buffer, size, time.
SEC("raw_tracepoint/drive")
int drive(u64 *ctx)
{
	u32 pid = ctx[1];
	struct conn *c = bpf_map_lookup_elem(&conns, &pid);
	if (!c)
		c = conn_of(pid, ctx[2]);
	if (!c)
		return 1;
	if (ctx[0] == 0)
		was_read(c, ctx[3], ctx[4], ctx[5]);
	else if (ctx[0] == 1)
		was_sent(c, ctx[3], ctx[4], ctx[5]);
	else if (ctx[0] == 2)
		forget(c, pid);
	else
		learned(c, ctx[3], ctx[5]);
	return 0;
}
