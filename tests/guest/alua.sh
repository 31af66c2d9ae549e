#!/bin/bash
# Guest script: a LUN through two nodes of a cluster under dm-multipath, which asks by ALUA which way is the good one. READY when load runs
# under a reservation; for each word of EVENTS waits until the host has made /share/WORD and the load has come through after that.
#   PORTALS IQN EVENTS
. /guest/lib.sh
. /guest/login.sh
cat >/etc/multipath.conf <<'CONF'
defaults {
    find_multipaths no
    user_friendly_names yes
    polling_interval 2
    max_polling_interval 4
    path_grouping_policy group_by_prio
    prio alua
    failback immediate
    path_checker tur
    no_path_retry 90
    fast_io_fail_tmo 1
    reservation_key 0x5ca1ab1e
}
blacklist {
    devnode "^(vd|loop|sr)"
}
CONF
modprobe scsi_dh_alua
start_udev || fail "udev"
start_multipathd || fail "multipathd"
# A node that says nothing is given up soon, as others have its paths.
iscsi_set node.session.timeo.replacement_timeout 2
iscsi_set node.conn[0].timeo.noop_out_interval 2
iscsi_set node.conn[0].timeo.noop_out_timeout 3
for p in $PORTALS; do login "$p" || fail "login at $p"; done

# The map of the unit with number 0, which the events concern.
map_of() {
    for _d in /sys/class/iscsi_session/session*/device/target*/*:0/block/*/holders/*; do
        [ ! -e "$_d/dm/name" ] || { echo "/dev/mapper/$(cat "$_d/dm/name")"; return 0; }
    done
    return 1
}
# A format with spaces is answered with nothing.
paths() { multipathd show paths format '%m:%t:' | awk -F '[ :]+' -v m="${map##*/}" '$1 == m && $2 == "active" { n++ } END { print n + 0 }'; }
has_paths() { [ "$(paths)" = "$1" ]; }
wait_for 90 map_of >/dev/null || { multipath -ll; fail "map"; }
map=$(map_of)
wait_for 90 has_paths 2 || { multipath -ll | cat; multipathd show paths format '%m:%t:%p'; fail "paths"; }
multipath -ll | cat
prios=$(multipathd show paths format '%m:%p:' | awk -F '[ :]+' -v m="${map##*/}" '$1 == m { print $2 }' | sort -n | tr '\n' ' ')
[ "$prios" = "10 50 " ] || fail "priorities of the ways: $prios"

mpathpersist --out --register --param-sark=0x5ca1ab1e "$map" || fail "registration"
mpathpersist --out --reserve --param-rk=0x5ca1ab1e --prout-type=5 "$map" || fail "reservation"
[ "$(mpathpersist --in -k "$map" | grep -ic 0x5ca1ab1e)" = 2 ] || { mpathpersist --in -k "$map"; fail "keys"; }
dmesg -c >/dev/null

: >/tmp/rounds
load() {
    until [ -e /tmp/enough ]; do
        fio_verify "$map" 8M >>/tmp/fio || { touch /tmp/broken; return 1; }
        echo >>/tmp/rounds
    done
}
rounds() { [ -e /tmp/broken ] || [ "$(wc -l </tmp/rounds)" -ge "$1" ]; }
sound() { [ ! -e /tmp/broken ] || { tail -3 /tmp/fio; multipath -ll; dmesg | tail -20; fail "data, $1"; }; }
load &
wait_for 180 rounds 1 || fail "the load does not begin"
echo READY
for event in $EVENTS; do
    wait_for 300 test -e "/share/$event" || fail "the host never made $event"
    wait_for 300 rounds "$(($(wc -l </tmp/rounds) + 2))" || { multipath -ll; dmesg | tail -30; fail "the load stands still, $event"; }
    sound "$event"
    mpathpersist --in -r "$map" | grep -qi 'key *= *0x5ca1ab1e' || { mpathpersist --in -r "$map"; fail "the reservation is gone, $event"; }
    multipath -ll | cat
    echo "THROUGH-$event"
done
touch /tmp/enough
wait
sound end
! dmesg | grep -E 'I/O error.*dm-|Buffer I/O error on dev dm-' || fail "the map had I/O errors"
wait_for 120 has_paths 2 || { multipath -ll; fail "a path did not come back"; }
[ "$(mpathpersist --in -k "$map" | grep -ic 0x5ca1ab1e)" -ge 2 ] || { mpathpersist --in -k "$map"; fail "keys at the end"; }
mpathpersist --out --release --param-rk=0x5ca1ab1e --prout-type=5 "$map" || fail "release"
echo "ALUA $(wc -l </tmp/rounds) rounds"
