#!/bin/busybox sh
# The guest's first program. It loads the driver for NPUs, puts the testbed's Debian root together with the host's folders,
# and then does what the host says through the control port, line by line. It powers off on request, and when the port closes.
# What differs from boot to boot is in /machine.sh.

/bin/busybox mkdir -p /proc /sys /dev /lower /upper /layer/usr/bin /layer/usr/local/bin /machine
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
exec </dev/console >/dev/console 2>&1
. /machine.sh

say() {
    echo "$*" >&3
}

off() {
    dmesg >"/machine$results/dmesg.txt"
    sync
    poweroff -f
    # It takes a moment, and the first program must not end.
    sleep 60
}

fail() {
    echo "init: $*"
    dmesg | tail -n 20
    say "failed $*"
    off
}

# Ports appear a moment after the kernel has started its first program.
open_control() {
    tries=0
    while [ $tries -lt 100 ]; do
        for port in /sys/class/virtio-ports/*; do
            if [ "$(cat "$port/name" 2>/dev/null)" = "$control" ] && [ -e "/dev/${port##*/}" ]; then
                exec 3<>"/dev/${port##*/}"
                return 0
            fi
        done
        tries=$((tries + 1))
        sleep 0.1
    done
    return 1
}

# share TAG FOLDER ro|rw: a folder of the host. What cannot change while the guest runs is cached.
share() {
    case $3 in
    ro) cache=loose ;;
    rw) cache=none ;;
    esac
    mkdir -p "$2"
    mount -t 9p -o "trans=virtio,version=9p2000.L,msize=524288,cache=$cache,$3" "$1" "$2" ||
        fail "cannot mount the host's folder $2 ($1)"
}

for module in $modules; do
    insmod "/modules/$module.ko" || echo "init: cannot load $module"
done
open_control || { echo "init: there is no control port $control"; off; }

say "stage mounting the host's folders"
share root /lower ro
mount -t tmpfs none /upper
mkdir /upper/data /upper/work
cp /bin/busybox /layer/usr/bin
busybox --install -s /layer/usr/local/bin
mount -t overlay -o lowerdir=/lower:/layer,upperdir=/upper/data,workdir=/upper/work none /machine ||
    fail "cannot put the root together"
cd /machine || fail "there is no root"
mkdir -p proc sys dev run tmp
mount -t proc none proc
mount -t sysfs none sys
mount -t debugfs none sys/kernel/debug
mount -t devtmpfs none dev
mkdir -p dev/pts dev/shm
mount -t devpts none dev/pts
mount -t tmpfs none dev/shm
mount -t tmpfs none run
mount -t tmpfs none tmp
mkdir run/modules
mount --bind /modules run/modules
[ -e usr/bin/sh ] || ln -s busybox usr/bin/sh
shares
cd /

say "stage loading the driver"
for module in $driver_modules; do
    case $module in
    "$driver") insmod "/modules/$module.ko" $parameters ;;
    *) insmod "/modules/$module.ko" ;;
    esac || echo "init: cannot load $module"
done
if [ -n "$carveout" ]; then
    echo "$carveout" >"/machine/sys/kernel/debug/accel/$address/carveout" || echo "init: cannot set the carveout"
fi

environment="/bin/busybox env -i HOME=/root LC_ALL=C.UTF-8 \
    PATH=/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
read -r uptime rest </proc/uptime
say "ready $uptime"

while read -r word first second third <&3; do
    case $word in
    run)
        files=/machine$results/$first
        timeout -s KILL "$second" chroot /machine $environment TERM=dumb sh "$results/$first.sh" \
            </dev/null >"$files.out" 2>"$files.err" 3>&-
        say "ended $first $?"
        ;;
    shell)
        setsid sh -c 'exec <>/dev/hvc0 >&0 2>&0 3>&-; stty rows "$1" cols "$2"; shift 2; exec chroot /machine "$@"' \
            shell "$first" "$second" $environment TERM="$third" PS1='npu:\w# ' sh -i
        say "ended 0 $?"
        ;;
    off) break ;;
    esac
done
off
