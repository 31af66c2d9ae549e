#!/bin/bash
# Guest script: an ext4 on the LUN of DISK_BYTES, the share beside it, fio with verification on both, and meanwhile writes in
# a known order, alternating between the two (ordered.c). Prints its `AT n`, until the host has made /share/hurt.
#   PORTAL IQN DISK_BYTES SRV PORT SHARE SMB_USER SMB_PASS SLOTS EVERY SIZE_MIB
. /guest/lib.sh
. /guest/login.sh
login "$PORTAL" || fail "login"
wait_disks 2 || fail "no disks"
for name in $(iscsi_disks); do
    [ "$(blockdev --getsize64 "/dev/$name")" -ne "$DISK_BYTES" ] || disk=/dev/$name
done
[ -n "$disk" ] || fail "no disk of $DISK_BYTES bytes"
mkfs.ext4 -q -E lazy_itable_init=0,nodiscard "$disk" || fail "mkfs"
mkdir -p /mnt/disk /mnt/smb
mount "$disk" /mnt/disk || fail "mount of the disk"
mount -t cifs "//$SRV/$SHARE" /mnt/smb \
    -o "port=$PORT,vers=3.1.1,username=$SMB_USER,password=$SMB_PASS,cache=strict,persistenthandles" || { dmesg | tail -20; fail "mount"; }
load() {
    round=0
    while [ ! -e /share/hurt ]; do
        round=$((round + 1))
        [ $round -lt 200 ] || fail "the host never answered"
        fio --rw=randwrite --bsrange=4k-64k --blockalign=4k --ioengine=libaio --iodepth=4 --direct=1 --size="${SIZE_MIB}M" \
            --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_dump=0 --verify_state_save=0 --randseed=$round --output-format=terse \
            --terse-version=3 --name=disk --filename=/mnt/disk/load --name=share --filename=/mnt/smb/load || return
    done
}
load >/tmp/fio.out 2>&1 &
fio=$!
wait_for 60 test -s /mnt/disk/load -a -s /mnt/smb/load || { cat /tmp/fio.out; fail "load does not begin"; }
/share/ordered /mnt/disk/ordered /mnt/smb/ordered "$SLOTS" /share/hurt "$EVERY" || { dmesg | tail -20; fail "ordered writes"; }
wait $fio || { tail -20 /tmp/fio.out; fail "load"; }
awk -F';' '/^3;/ { n++; if ($6 == 0 || $47 == 0) exit 1 } END { print "fio: " n " jobs, all verified"; exit n == 0 }' /tmp/fio.out ||
    { cat /tmp/fio.out; fail "nothing was verified"; }
umount /mnt/smb || fail "umount of the share"
umount /mnt/disk || fail "umount of the disk"
iscsi_logout || fail "logout"
no_io_errors || fail "the kernel saw I/O errors"
echo "DONE"
