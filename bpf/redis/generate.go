package redis

// `make bpf` runs this, with the compiler of Debian 12 and with bpf2go of the library's own version.
//go:generate $BPF2GO -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -cflags "-mcpu=v3 -Wall -Werror" -type record kernel redis.bpf.c
