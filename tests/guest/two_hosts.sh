# shellcheck shell=bash
# Part of a guest script that has /guest/lib.sh and a running iscsid: one kernel logs in to a target as two hosts, each with its
# own name and CHAP user. Neither sees, ends or fences the other's, whatever name it gives itself.
#   PORTALS HOSTS_IQN A_NAME A_USER A_SECRET B_NAME B_USER B_SECRET

# host IFACE NAME USER SECRET: interface and record of a host that says it is NAME and proves to be USER. Written as files where
# that will do: each call of iscsiadm takes a slow guest a second.
host() {
    mkdir -p /etc/iscsi/ifaces
    printf 'iface.%s\n' "iscsi_ifacename = $1" "transport_name = tcp" "initiatorname = $2" >"/etc/iscsi/ifaces/$1"
    iscsi_set node.session.auth.authmethod CHAP
    iscsi_set node.session.auth.username "$3"
    iscsi_set node.session.auth.password "$4"
    at "$1" -o new >/dev/null
}
at() { iscsiadm -m node -T "$HOSTS_IQN" -p "${PORTALS%% *}" -I "$@"; }
# refused IFACE NAME USER SECRET: such a host is told that it may not log in, and nothing else goes wrong.
refused() {
    host "$@" || fail "record of $1"
    at "$1" --login >/tmp/refused 2>&1
    # 24 is iscsiadm's word for a failed authentication, 19 for another refusal by the target.
    case $? in 24|19) ;; 0) fail "$3 is let in as $2" ;; *) cat /tmp/refused; fail "$3 as $2: no refusal" ;; esac
}
# session_of NAME: the only session that has this initiator's name.
session_of() { grep -lx "$1" /sys/class/iscsi_session/session*/initiatorname | sed 's,.*/\(session[0-9]*\)/.*,\1,'; }
# units_of SESSION: its disks as "NUMBER NAME", in order.
units_of() {
    for _d in /sys/class/iscsi_session/"$1"/device/target*/*/block/*; do
        _n=${_d%/block/*}
        [ ! -e "$_d" ] || echo "${_n##*:} ${_d##*/}"
    done | sort
}
has_units() { [ "$(units_of "$1" | wc -l)" -ge "$2" ]; }
holds() { sg_persist -n -i -r "/dev/$1" | grep -q "Key=$2"; }
keys() { sg_persist -n -i -k "/dev/$1" | grep -o '0x[0-9a-f]*$' | tr '\n' ' '; }
persist() { sg_persist -n -o "$@" >/tmp/persist 2>&1 || { cat /tmp/persist; return 1; }; }

# What the case before has set finds a dead path soon; here a slow guest must lose no connection.
iscsi_set node.session.timeo.replacement_timeout 60
iscsi_set node.conn[0].timeo.noop_out_interval 30
iscsi_set node.conn[0].timeo.noop_out_timeout 60
host a "$A_NAME" "$A_USER" "$A_SECRET" && at a --login || fail "login of a"
host b "$B_NAME" "$B_USER" "$B_SECRET" && at b --login || fail "login of b"
sa=$(session_of "$A_NAME") sb=$(session_of "$B_NAME")
wait_for 60 has_units "$sa" 2 && wait_for 60 has_units "$sb" 1 || fail "units"
udevadm settle --timeout=30

# Each sees its own: the units have the same numbers, and are not the same.
[ "$(units_of "$sa" | cut -d' ' -f1 | tr '\n' ' ')" = "0 1 " ] || fail "a sees $(units_of "$sa")"
[ "$(units_of "$sb" | cut -d' ' -f1 | tr '\n' ' ')" = "0 " ] || fail "b sees $(units_of "$sb")"
a=$(units_of "$sa" | sed -n 's/^0 //p') b=$(units_of "$sb" | sed -n 's/^0 //p')
[ "$(sg_luns -q "/dev/$b" | grep -c .)" = 1 ] || { sg_luns "/dev/$b"; fail "b is told of other units"; }
[ "$(sg_vpd -q -p di "/dev/$a")" != "$(sg_vpd -q -p di "/dev/$b")" ] || fail "both have one unit"

# The first works, with a reservation that lets nobody else in (type 3).
persist -G -S 0xabc1 "/dev/$a" && persist -R -K 0xabc1 -T 3 "/dev/$a" || fail "reservation of a"
dmesg -c >/dev/null
load() {
    until [ -e /tmp/hosts-enough ]; do
        fio_verify "/dev/$a" 2M >>/tmp/hosts-fio || { touch /tmp/hosts-broken; return 1; }
        echo >>/tmp/hosts-rounds
    done
}
rounds() { [ "$(wc -l </tmp/hosts-rounds)" -ge "$1" ]; }
: >/tmp/hosts-rounds
load &
wait_for 120 rounds 1 || fail "the load does not begin"

# The second says that it is the first one: with its own secret, with a guessed one, and with the name in capital letters.
refused a-by-b "$A_NAME" "$B_USER" "$B_SECRET"
refused a-guessed "$A_NAME" "$A_USER" "a-guess-of-some-length"
refused a-capital "${A_NAME^^}" "$B_USER" "$B_SECRET"
# Nor is the first one let in as the second.
refused b-by-a "$B_NAME" "$A_USER" "$A_SECRET"

# As itself it sees no key of the other's, and takes nothing away with its own.
[ -z "$(keys "$b")" ] || fail "b sees the keys $(keys "$b")"
persist -G -S 0xabc2 "/dev/$b" && persist -R -K 0xabc2 -T 3 "/dev/$b" || fail "reservation of b"
[ "$(keys "$b")" = "0xabc2 " ] || fail "b sees the keys $(keys "$b")"
! persist -A -K 0xabc2 -S 0xabc1 -T 3 "/dev/$b" >/dev/null || fail "b preempts a key that its unit does not have"
persist -C -K 0xabc2 "/dev/$b" || fail "clear of b"
# Resets of its unit and of the target: the kernel logs in anew where the target does not do them.
sg_reset -d "/dev/$b" || fail "reset of b's unit"
sg_reset -t "/dev/$b" || fail "reset of the target by b"
dd if=/dev/urandom of=/tmp/of-b bs=1M count=2 2>/dev/null
wait_for 60 dd if=/tmp/of-b "of=/dev/$b" bs=1M oflag=direct || fail "b cannot write after its resets"
dd "if=/dev/$b" bs=1M count=2 iflag=direct 2>/dev/null | cmp - /tmp/of-b || fail "b reads something else"

# The first has noticed nothing.
wait_for 120 rounds "$(($(wc -l </tmp/hosts-rounds) + 2))" || fail "a's load stands still"
touch /tmp/hosts-enough
wait $!
[ ! -e /tmp/hosts-broken ] || { tail -3 /tmp/hosts-fio; dmesg | tail; fail "a's data"; }
holds "$a" 0xabc1 || { sg_persist -n -i -r "/dev/$a"; fail "a's reservation is gone"; }
[ "$(keys "$a")" = "0xabc1 " ] || fail "a sees the keys $(keys "$a")"
[ "$(session_of "$A_NAME")" = "$sa" ] || fail "a has another session"
# Nor was it told of a reset, or logged in anew: SCSI address of its unit, number of its connection.
u=$(basename "$(readlink -f "/sys/block/$a/device")")
! dmesg | grep -E "connection${sa#session}:0: detected conn error|sd $u: .*(reset|error|FAILED)" || fail "a's session was disturbed"
[ "$(units_of "$sa" | wc -l)" = 2 ] || fail "a lost a unit"
at a --logout && at b --logout || fail "logout"
echo "TWO-HOSTS $(wc -l </tmp/hosts-rounds) rounds"
