// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What our programs need of the kernel, and no more: integer types, the fields that we read (relocated by their names when a program is
// loaded, so that no line here depends on a kernel's layout), map declarations, and the helpers by their numbers, which are ABI.
#ifndef PLIMSOLL_CORE_H
#define PLIMSOLL_CORE_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef u8 bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))

// Map declarations as BTF: the numbers are array lengths, because BTF keeps those.
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_RB_NO_WAKEUP = 1 };

// One statement each, so that a reader can hold them against include/uapi/linux/bpf.h.
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*bpf_get_current_task)(void) = (void *)35;
static u64 (*bpf_get_current_cgroup_id)(void) = (void *)80;
static long (*bpf_map_push_elem)(void *map, const void *value, u64 flags) = (void *)87;
static long (*bpf_map_pop_elem)(void *map, void *value) = (void *)88;
static long (*bpf_probe_read_user)(void *dst, u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *dst, u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_user_str)(void *dst, u32 size, const void *from) = (void *)114;
static void *(*bpf_ringbuf_reserve)(void *ringbuf, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *data, u64 flags) = (void *)133;
static long (*bpf_for_each_map_elem)(void *map, void *callback, void *ctx, u64 flags) = (void *)164;
static u64 (*bpf_get_attach_cookie)(void *ctx) = (void *)174;
static long (*bpf_loop)(u32 rounds, void *callback, void *ctx, u64 flags) = (void *)181;

// bounded checks a size that is known to be in its bound once more, for the verifier: that of Linux 6.1 learns nothing of a comparison with
// another variable and forgets what it knew of a copy of 32 bits, and the compiler must not see that the check is idle.
static __always_inline bool bounded(u32 *n, const u32 most)
{
	u32 size = *n;
	asm volatile("" : "+r"(size));
	if (size > most)
		return false;
	*n = size;
	return true;
}

#define RELOCATED __attribute__((preserve_access_index))

// read_field copies one field of a kernel structure; on a fault dst is zero.
#define read_field(dst, src, field) \
	bpf_probe_read_kernel(&(dst), sizeof(dst), __builtin_preserve_access_index(&(src)->field))

struct in6_addr {
	u8 s6_addr[16]; // a union in the kernel, all of whose members begin here
} RELOCATED;

struct sock_common {
	u32 skc_daddr;
	u16 skc_dport, skc_num, skc_family;
	struct in6_addr skc_v6_daddr;
} RELOCATED;
struct sock {
	struct sock_common __sk_common;
} RELOCATED;
struct unix_sock {
	struct sock sk;
	void *addr;
} RELOCATED;
struct socket {
	struct sock *sk;
} RELOCATED;
struct inode {
	u16 i_mode;
} RELOCATED;
struct file {
	void *private_data;
	struct inode *f_inode;
} RELOCATED;
struct fdtable {
	u32 max_fds;
	struct file **fd;
} RELOCATED;
struct files_struct {
	struct fdtable *fdt;
} RELOCATED;
struct mm_struct {
	u64 arg_start;
} RELOCATED;
struct task_struct {
	struct files_struct *files;
	struct mm_struct *mm;
} RELOCATED;

enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10 };
enum { MSG_PEEK = 2 };
enum { S_IFMT = 0170000, S_IFSOCK = 0140000 };

// What a tracepoint of one system call is given: /sys/kernel/tracing/events/syscalls/sys_enter_*/format.
struct syscall_enter {
	u64 header;
	s64 number;
	u64 args[6];
};
struct syscall_exit {
	u64 header;
	s64 number;
	s64 ret;
};

// Arguments and result of a function of the x86-64 and AArch64 calling conventions.
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#define ARG1(ctx) ((ctx)->di)
#define ARG2(ctx) ((ctx)->si)
#define ARG3(ctx) ((ctx)->dx)
#define ARG4(ctx) ((ctx)->cx)
#define ARG5(ctx) ((ctx)->r8)
#define RESULT(ctx) ((s64)(ctx)->ax)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs; // the kernel's; a program sees its user part
struct user_pt_regs {
	u64 regs[31], sp, pc, pstate;
};
#define ARG1(ctx) (((const struct user_pt_regs *)(ctx))->regs[0])
#define ARG2(ctx) (((const struct user_pt_regs *)(ctx))->regs[1])
#define ARG3(ctx) (((const struct user_pt_regs *)(ctx))->regs[2])
#define ARG4(ctx) (((const struct user_pt_regs *)(ctx))->regs[3])
#define ARG5(ctx) (((const struct user_pt_regs *)(ctx))->regs[4])
#define RESULT(ctx) ((s64)((const struct user_pt_regs *)(ctx))->regs[0])
#else
#error "no calling convention for this architecture"
#endif

#endif
