//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The commands of Redis and Valkey servers, measured from the kernel. What a server reads from its clients and writes to them is seen where it
// is plain: at read, write and writev, or, if the connection is sealed with TLS, behind libssl's SSL_read and SSL_write. Counts
// are kept here and read as memory; only commands seen for the first time and those that are slow or failed are told one by one.
#include "answer.h"
#include "tend.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// A use of the type, so that its declaration for Go can be made.
const struct record *record_type __attribute__((unused));

// Rounds of the walk over one buffer. A value is stepped over in one.
enum { ROUNDS_MOST = 1 << 22 };

static __always_inline u32 rounds(struct conn *c)
{
	return c->size > ROUNDS_MOST ? ROUNDS_MOST : c->size;
}

// walked gives a stream up if its buffer took more rounds than there are.
static __always_inline void walked(struct conn *c)
{
	if (c->phase == PHASE_READY && c->off < c->size)
		broken(c);
}

// The first byte of a handshake of TLS. The bus of a cluster, which may be an accepted connection too, has a signature.
enum { TLS_HANDSHAKE = 0x16 };

// meet decides by the first bytes of a connection what it is, and says whether they are its commands.
static __always_inline bool meet(struct conn *c)
{
	u8 b[4] = {};
	u32 size = c->size;
	if (size > sizeof(b))
		size = sizeof(b);
	if (!bounded(&size, sizeof(b)) || bpf_probe_read_user(b, size, (void *)c->ptr)) {
		lose(LOST_FAULTS);
		resync(c);
		return false;
	}
	if (b[0] == TLS_HANDSHAKE && c->feeder == FED_BY_SYSCALLS) {
		c->feeder = FED_BY_UPROBES;
		return false;
	}
	if (b[0] == 'R' && b[1] == 'C' && b[2] == 'm' && b[3] == 'b') {
		c->phase = PHASE_OTHER;
		return false;
	}
	c->phase = PHASE_READY;
	default_user(c);
	return true;
}

// restart begins to follow a connection that was there before, or was lost, if a command surely begins here: an answer was written since, so that
// the server is done with what came before.
static __always_inline void restart(struct conn *c)
{
	u64 b = 0; // the first byte lowest
	if (!c->answered || c->size < sizeof(b) || bpf_probe_read_user(&b, sizeof(b), (void *)c->ptr))
		return;
	if ((u8)b != '*' || (u8)(b >> 8) == '0' || !is_digit(b >> 8))
		return;
	b >>= is_digit(b >> 16) ? 24 : 16; // the line's end, and the size of a string
	if ((b & 0xffffff) != ('\r' | '\n' << 8 | '$' << 16) || !is_digit(b >> 24))
		return;
	clear(c, ASKED);
	clear(c, QUEUED);
	__builtin_memset(&c->in, 0, sizeof(c->in));
	__builtin_memset(&c->out, 0, sizeof(c->out));
	c->done_ns = c->first_ns = 0;
	c->phase = PHASE_READY;
}

// was_read takes what a server has read.
__noinline int was_read(struct conn *c, u64 ptr, u32 size, u64 now)
{
	if (!c)
		return 0;
	begin(c, ptr, size, now);
	if (c->phase == PHASE_FRESH && !meet(c))
		return 0;
	if (c->phase == PHASE_UNSYNCED) {
		restart(c);
		if (c->phase == PHASE_UNSYNCED)
			lose(LOST_UNSYNCED);
	}
	if (c->phase != PHASE_READY)
		return 0;
	struct scan s = {.c = c};
	bpf_loop(rounds(c), request_step, &s, 0);
	walked(c);
	c->key_at = 0; // what of a key is still to come lies elsewhere
	flush(c);
	return 0;
}

// was_sent takes what a server has written.
__noinline int was_sent(struct conn *c, u64 ptr, u32 size, u64 now)
{
	if (!c)
		return 0;
	begin(c, ptr, size, now);
	if (c->phase == PHASE_UNSYNCED) {
		u8 b[2] = {};
		c->answered = size >= sizeof(b) && !bpf_probe_read_user(b, sizeof(b), (void *)(ptr + size - sizeof(b))) && b[0] == '\r' && b[1] == '\n';
	}
	if (c->phase != PHASE_READY)
		return 0;
	struct scan s = {.c = c};
	bpf_loop(rounds(c), answer_step, &s, 0);
	walked(c);
	flush(c);
	return 0;
}

// conn_of makes a connection of a process of a measured container.
static __always_inline struct conn *conn_of(struct conn_key *key, u64 cgroup, u8 phase)
{
	u32 zero = 0, round = watch_round;
	struct conn *c = bpf_map_lookup_elem(&blank, &zero);
	struct target *target = bpf_map_lookup_elem(&targets, &cgroup);
	if (!c || !target)
		return NULL;
	if (bpf_map_update_elem(&conns, key, c, BPF_NOEXIST)) {
		lose(LOST_CONNECTIONS);
		return NULL;
	}
	c = bpf_map_lookup_elem(&conns, key);
	if (!c)
		return NULL;
	c->born = bpf_ktime_get_ns();
	c->pid = key->pid;
	c->fd = key->fd;
	c->cgroup = cgroup;
	c->watched = round;
	c->phase = phase;
	c->slow_ns = target->slow_ns;
	return c;
}

// forget is called by the process itself, or in its last moments.
__noinline int forget(struct conn *c)
{
	if (!c)
		return 0;
	struct conn_key key = {.pid = c->pid, .fd = c->fd};
	struct seal_key seal = {.ssl = c->ssl, .pid = c->pid};
	if (c->phase == PHASE_READY && !is_empty(c, ASKED))
		lose(LOST_ABORTED);
	clear(c, ASKED); // its spilled units
	clear(c, QUEUED);
	if (c->ssl)
		bpf_map_delete_elem(&seals, &seal);
	bpf_map_delete_elem(&conns, &key);
	return 0;
}

// still says whether a connection's container is measured still, and forgets the connection if not.
__noinline int still(struct conn *c)
{
	if (!c)
		return 0;
	u32 round = watch_round;
	u64 cgroup = c->cgroup;
	struct target *target = bpf_map_lookup_elem(&targets, &cgroup);
	if (target) {
		c->slow_ns = target->slow_ns;
		c->watched = round;
		return 1;
	}
	forget(c);
	return 0;
}

static __always_inline u32 current_pid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline struct conn *known(s32 fd)
{
	struct conn_key key = {.pid = current_pid(), .fd = fd};
	struct conn *c = bpf_map_lookup_elem(&conns, &key);
	if (!c || c->watched == watch_round || still(c))
		return c;
	return NULL;
}

// serves says whether a descriptor is a socket on which this process is the server: of a port of its container, or a local one that was
// accepted (which has the name of its listener, while a client's has none). A replica is a client of its primary, and the agent of both.
static __noinline int serves(s32 fd, u32 ports)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct files_struct *files = NULL;
	struct fdtable *table = NULL;
	struct file **list = NULL, *file = NULL;
	struct inode *inode = NULL;
	struct socket *socket = NULL;
	struct sock *sk = NULL;
	u32 most = 0;
	u16 family = 0, local = 0, mode = 0;
	void *name = NULL;
	read_field(files, task, files);
	read_field(table, files, fdt);
	read_field(most, table, max_fds);
	read_field(list, table, fd);
	if (fd < 0 || fd >= most)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), list + fd);
	read_field(inode, file, f_inode);
	read_field(mode, inode, i_mode);
	if ((mode & S_IFMT) != S_IFSOCK)
		return 0;
	read_field(socket, file, private_data);
	read_field(sk, socket, sk);
	read_field(family, sk, __sk_common.skc_family);
	if (family == AF_INET || family == AF_INET6) {
		read_field(local, sk, __sk_common.skc_num);
		return local && (local == (u16)ports || local == (u16)(ports >> 16));
	}
	if (family != AF_UNIX)
		return 0;
	read_field(name, (struct unix_sock *)sk, addr);
	return name != NULL;
}

// serving gives the ports of the server of this process' container if the descriptor is one of its connections.
static __always_inline bool serving(s32 fd, u64 cgroup)
{
	struct target *target = bpf_map_lookup_elem(&targets, &cgroup);
	return target && serves(fd, (u32)target->ports[1] << 16 | target->ports[0]);
}

// connection finds a connection that a process reads, or makes it.
static __always_inline struct conn *connection(s32 fd, u64 cgroup)
{
	struct conn *c = known(fd);
	if (c || !serving(fd, cgroup))
		return c;
	struct conn_key key = {.pid = current_pid(), .fd = fd};
	return conn_of(&key, cgroup, PHASE_UNSYNCED);
}

static __always_inline struct thread *current_thread(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	return bpf_map_lookup_elem(&threads, &tid);
}

static __noinline struct thread *new_thread(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread t = {};
	if (bpf_map_update_elem(&threads, &tid, &t, BPF_ANY)) {
		lose(LOST_CONNECTIONS);
		return NULL;
	}
	return bpf_map_lookup_elem(&threads, &tid);
}

// seal notes which connection an object of libssl seals: the one that it reads from or writes to while it is at work. Nothing of that is guessed.
__noinline int seal(struct thread *t, s32 fd, u64 cgroup)
{
	if (!t)
		return 0;
	struct conn *c = connection(fd, cgroup);
	if (!c || c->ssl == t->ssl)
		return 0;
	struct seal_key key = {.ssl = c->ssl, .pid = c->pid};
	if (c->ssl)
		bpf_map_delete_elem(&seals, &key);
	key.ssl = t->ssl;
	if (bpf_map_update_elem(&seals, &key, &fd, BPF_ANY)) {
		lose(LOST_CONNECTIONS);
		return 0;
	}
	c->ssl = t->ssl;
	c->feeder = FED_BY_UPROBES;
	return 0;
}

// sealed is the connection that an object of libssl seals.
static __always_inline struct conn *sealed(u64 ssl, void *ctx)
{
	struct seal_key key = {.ssl = ssl, .pid = current_pid()};
	s32 *fd = bpf_map_lookup_elem(&seals, &key);
	if (!fd)
		return NULL;
	struct conn *c = known(*fd);
	if (!c || c->ssl != ssl)
		return NULL;
	// Each time that a program is attached to has a cookie of its own: if a connection has another, what it said meanwhile is not known.
	u32 cookie = bpf_get_attach_cookie(ctx);
	if (c->cookie != cookie) {
		if (c->cookie && c->phase != PHASE_OTHER)
			resync(c);
		c->cookie = cookie;
	}
	return c;
}

SEC("tracepoint/syscalls/sys_enter_read")
int read_begins(struct syscall_enter *ctx)
{
	u64 cgroup = bpf_get_current_cgroup_id();
	if (!marked(cgroup))
		return 0;
	s32 fd = ctx->args[0];
	struct thread *t = current_thread();
	if (t && t->ssl) {
		seal(t, fd, cgroup);
		return 0;
	}
	if (!t) {
		if (!connection(fd, cgroup))
			return 0;
		t = new_thread();
		if (!t)
			return 0;
	}
	t->fd = fd;
	t->read_at = ctx->args[1];
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_read")
int read_ends(struct syscall_exit *ctx)
{
	u64 cgroup = bpf_get_current_cgroup_id();
	if (!marked(cgroup))
		return 0;
	struct thread *t = current_thread();
	if (!t || !t->read_at)
		return 0;
	u64 ptr = t->read_at;
	t->read_at = 0;
	if (ctx->ret <= 0)
		return 0;
	struct conn *c = connection(t->fd, cgroup);
	if (c && c->feeder == FED_BY_SYSCALLS)
		was_read(c, ptr, ctx->ret, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int writes(struct syscall_enter *ctx, u32 vectors)
{
	if (!marked(bpf_get_current_cgroup_id()))
		return 0;
	s32 fd = ctx->args[0];
	struct conn *c = known(fd);
	if (!c || c->feeder != FED_BY_SYSCALLS)
		return 0;
	struct thread *t = current_thread();
	if (!t)
		t = new_thread();
	if (!t)
		return 0;
	t->fd = fd;
	t->write_at = ctx->args[1];
	t->vectors = vectors;
	t->write_ns = bpf_ktime_get_ns(); // the client may have its answer before the call returns
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_write")
int write_begins(struct syscall_enter *ctx)
{
	return writes(ctx, 0);
}

SEC("tracepoint/syscalls/sys_enter_writev")
int writev_begins(struct syscall_enter *ctx)
{
	return ctx->args[2] > 0 ? writes(ctx, ctx->args[2]) : 0;
}

struct vector {
	u64 base, size;
};
struct vectors {
	struct conn *c;
	u64 at, left, now;
};

static long vector_step(u32 i, struct vectors *v)
{
	struct vector one = {};
	if (!v->left)
		return 1;
	if (bpf_probe_read_user(&one, sizeof(one), (void *)(v->at + i * sizeof(one)))) {
		lose(LOST_FAULTS);
		resync(v->c);
		return 1;
	}
	u64 n = one.size < v->left ? one.size : v->left;
	v->left -= n;
	if (n)
		was_sent(v->c, one.base, n, v->now);
	return 0;
}

// The result says how much was taken: a socket may take a part, and the server then sends the rest.
SEC("tracepoint/syscalls/sys_exit_write")
int write_ends(struct syscall_exit *ctx)
{
	if (!marked(bpf_get_current_cgroup_id()))
		return 0;
	struct thread *t = current_thread();
	if (!t || !t->write_at)
		return 0;
	u64 ptr = t->write_at;
	t->write_at = 0;
	if (ctx->ret <= 0)
		return 0;
	struct conn *c = known(t->fd);
	if (!c)
		return 0;
	if (!t->vectors) {
		was_sent(c, ptr, ctx->ret, t->write_ns);
		return 0;
	}
	enum { VECTORS_MOST = 1024 }; // IOV_MAX
	struct vectors v = {.c = c, .at = ptr, .left = ctx->ret, .now = t->write_ns};
	bpf_loop(VECTORS_MOST, vector_step, &v, 0);
	return 0;
}

// A connection is known from its beginning if it is seen to be accepted.
SEC("tracepoint/syscalls/sys_exit_accept4")
int accepted(struct syscall_exit *ctx)
{
	u64 cgroup = bpf_get_current_cgroup_id();
	if (!marked(cgroup) || ctx->ret < 0)
		return 0;
	s32 fd = ctx->ret;
	struct conn *before = known(fd);
	if (before)
		forget(before);
	if (!serving(fd, cgroup))
		return 0;
	struct conn_key key = {.pid = current_pid(), .fd = fd};
	conn_of(&key, cgroup, PHASE_FRESH);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_close")
int closes(struct syscall_enter *ctx)
{
	if (!marked(bpf_get_current_cgroup_id()))
		return 0;
	struct conn *c = known(ctx->args[0]);
	if (c)
		forget(c);
	return 0;
}

static __always_inline struct thread *begins_to_seal(struct pt_regs *ctx)
{
	u64 cgroup = bpf_get_current_cgroup_id();
	if (!marked(cgroup) || !bpf_map_lookup_elem(&targets, &cgroup))
		return NULL;
	struct thread *t = current_thread();
	if (!t)
		t = new_thread();
	if (!t)
		return NULL;
	t->ssl = ARG1(ctx);
	t->ssl_at = ARG2(ctx);
	return t;
}

// int ssl_read_internal(SSL *s, void *buf, size_t num, size_t *readbytes): what SSL_read and SSL_read_ex both call.
SEC("uprobe/ssl_read_internal")
int sealed_read_begins(struct pt_regs *ctx)
{
	struct thread *t = begins_to_seal(ctx);
	if (t)
		t->ssl_got = ARG4(ctx);
	return 0;
}

// took ends libssl's function at work, and says how many bytes it took.
static __always_inline u64 took(struct thread *t, s64 result)
{
	u64 size = 0;
	t->ssl = 0;
	if (result <= 0 || !t->ssl_got || bpf_probe_read_user(&size, sizeof(size), (void *)t->ssl_got))
		return 0;
	return size;
}

SEC("uretprobe/ssl_read_internal")
int sealed_read_ends(struct pt_regs *ctx)
{
	struct thread *t = current_thread();
	if (!t || !t->ssl)
		return 0;
	u64 ssl = t->ssl, size = took(t, (s32)RESULT(ctx));
	struct conn *c = size ? sealed(ssl, ctx) : NULL;
	if (c)
		was_read(c, t->ssl_at, size, bpf_ktime_get_ns());
	return 0;
}

// int ssl_write_internal(SSL *s, const void *buf, size_t num, size_t *written); since OpenSSL 3.3 there are flags before written, which are small.
SEC("uprobe/ssl_write_internal")
int sealed_write_begins(struct pt_regs *ctx)
{
	struct thread *t = begins_to_seal(ctx);
	if (!t)
		return 0;
	t->ssl_got = ARG4(ctx) >= 1 << 16 ? ARG4(ctx) : ARG5(ctx);
	t->ssl_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("uretprobe/ssl_write_internal")
int sealed_write_ends(struct pt_regs *ctx)
{
	struct thread *t = current_thread();
	if (!t || !t->ssl)
		return 0;
	u64 ssl = t->ssl, size = took(t, (s32)RESULT(ctx));
	struct conn *c = size ? sealed(ssl, ctx) : NULL;
	if (c)
		was_sent(c, t->ssl_at, size, t->ssl_ns);
	return 0;
}

static long end_step(void *map, const struct conn_key *key, struct conn *c, u32 *pid)
{
	if (key->pid == *pid)
		forget(c);
	return 0;
}

SEC("raw_tracepoint/sched_process_exit")
int process_exits(void *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 pid = id >> 32, tid = id;
	if (bpf_map_delete_elem(&threads, &tid) || pid != tid)
		return 0;
	bpf_for_each_map_elem(&conns, end_step, &pid, 0);
	return 0;
}

// drive lets tests hand over bytes of their own at times of their own: the walk that is measured with is the walk that is tested.
// Arguments: what (0 read, 1 sent, 2 closed, 3 accepted), connection, cgroup, buffer, size, time.
SEC("raw_tracepoint/drive")
int drive(u64 *ctx)
{
	struct conn_key key = {.pid = ctx[1]};
	struct conn *c = bpf_map_lookup_elem(&conns, &key);
	if (!c)
		c = conn_of(&key, ctx[2], ctx[0] == 3 ? PHASE_FRESH : PHASE_UNSYNCED);
	if (!c)
		return 1;
	if (ctx[0] == 0)
		was_read(c, ctx[3], ctx[4], ctx[5]);
	else if (ctx[0] == 1)
		was_sent(c, ctx[3], ctx[4], ctx[5]);
	else if (ctx[0] == 2)
		forget(c);
	return 0;
}
