#!/bin/bash
# Guest script, run by the system that lies on the LUN: is / really there, and does it hold what is written?
#   ROUND=1|2
. /guest/lib.sh
grep -q '^/dev/vda / ext4' /proc/mounts || { cat /proc/mounts; fail "the root is not on the LUN"; }
if [ "$ROUND" = 2 ]; then sha256sum -c --quiet /root/sums || fail "what round 1 wrote is not there"; fi
fio_verify /root/verify.dat 32M || fail "data"
head -c 4000000 /dev/urandom >/root/random
sha256sum /root/random /root/verify.dat /usr/bin/busybox >/root/sums
sync
mount -o remount,ro / || fail "remount"
echo ROOT-ON-LUN
