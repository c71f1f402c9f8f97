# The first process of a node after power-on, in new mount and UTS namespaces and the node's network namespace.
# It gives the node its own standard paths; all of it vanishes with the node's last process, as at a power-off.
# usage: node-init.sh NAME DISK
set -e
name=$1 disk=$2
hostname "$name"
mount --make-rprivate /
sys=$(mktemp -d) # a fresh sysfs shows the node's own network devices
mount -t sysfs sysfs "$sys"
mount --rbind /sys/fs/cgroup "$sys/fs/cgroup"
mount -t bpf bpf "$sys/fs/bpf"
mount -t tracefs tracefs "$sys/kernel/tracing"
mount -t debugfs debugfs "$sys/kernel/debug"
mount -t securityfs securityfs "$sys/kernel/security"
umount -l /sys
mount --move "$sys" /sys
rmdir "$sys"
mount --bind "$disk/kubelet" /var/lib/kubelet
mount --bind "$disk/containerd" /var/lib/containerd
mount --bind "$disk/cni" /var/lib/cni
mount --bind "$disk/etc-cni" /etc/cni/net.d
mount --bind "$disk/log" /var/log
mount --bind "$disk/opt" /opt
mount -t tmpfs -o mode=755 tmpfs /run # sockets, namespace handles, address leases: gone at power-off
mkdir -p /run/netns /run/lock
for file in hosts resolv.conf hostname; do
	target=$(readlink -m "/etc/$file") # with systemd-resolved resolv.conf is a link into /run, which is empty now
	mkdir -p "$(dirname "$target")"
	[ -e "$target" ] || : >"$target"
	mount --bind "$disk/etc/$file" "$target"
done
mount --make-rshared /
echo ready >/run/node-ready
exec sleep infinity
