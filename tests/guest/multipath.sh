#!/bin/bash
# Guest script: one LUN through two portals under dm-multipath. READY when load runs; after the host has made /share/cut
# waits until one path is dead (ONE-PATH), after /share/mended until both are active again (TWO-PATHS).
#   PORTALS IQN SIZE_MIB, and what two_hosts.sh needs, which comes last
. /guest/lib.sh
. /guest/login.sh
start_udev || fail "udev"
start_multipathd || fail "multipathd"
# A dead path is given up after 5 s, so that the other is tried.
iscsi_set node.session.timeo.replacement_timeout 5
iscsi_set node.conn[0].timeo.noop_out_interval 2
iscsi_set node.conn[0].timeo.noop_out_timeout 3
for p in $PORTALS; do login "$p" || fail "login at $p"; done
wait_disks 2 || fail "disks"
map=$(wait_map 2) || { multipath -v3 -ll | tail -40; fail "map"; }
multipath -ll | cat
mkfs.ext4 -qF "$map" || fail "mkfs"
mkdir -p /mnt/mp
mount "$map" /mnt/mp || fail "mount"

active() { [ "$(multipathd show paths format '%t' | grep -c active)" = "$1" ]; }
load() { # until the file $1 is there
    while :; do
        fio_verify /mnt/mp/data "$((SIZE_MIB / 4))M" || { dmesg | tail; touch /tmp/broken; return 1; }
        [ ! -e "$1" ] || return 0
    done
}
load /tmp/enough &
echo READY
wait_for 300 test -e /share/cut || fail "the host never cut"
wait_for 180 active 1 || { multipath -ll; fail "no path died"; }
echo ONE-PATH
wait_for 300 test -e /share/mended || fail "the host never mended"
wait_for 300 active 2 || { multipath -ll; fail "the path did not return"; }
echo TWO-PATHS
touch /tmp/enough
wait
[ ! -e /tmp/broken ] || fail "data"
multipath -ll | cat
umount /mnt/mp || fail "umount"
multipathd shutdown >/dev/null
wait_for 30 multipath -F || fail "the map stays"
iscsi_logout || fail "logout"
. /guest/two_hosts.sh
