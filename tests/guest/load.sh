#!/bin/bash
# Guest script: log in (with CHAP when CHAP_USER is set), make a file system, write and verify SIZE_MIB in four rounds.
# Prints READY when load runs and PROGRESS when the second round begins, and goes on with rounds until the host has made
# the file /share/hurt, so that the fault always meets load.
#   PORTAL IQN CHAP_USER CHAP_SECRET FS=ext4|xfs SIZE_MIB
. /guest/lib.sh
. /guest/login.sh
login "$PORTAL" || fail "login"
wait_disks 1 || fail "no disk"
disk=/dev/$(iscsi_disks | head -1)
"mkfs.$FS" -q "$disk" || fail "mkfs"
mkdir -p /mnt/disk
mount "$disk" /mnt/disk || fail "mount"
part=$((SIZE_MIB / 4))
round=0
while [ $round -lt 4 ] || [ ! -e /share/hurt ]; do
    round=$((round + 1))
    [ $round -lt 60 ] || fail "the host never answered"
    case $round in 1) echo READY ;; 2) echo "PROGRESS" ;; esac
    fio_verify "/mnt/disk/round$((round % 4))" "${part}M" --overwrite=$((round > 4)) || { dmesg | tail -20; fail "data in round $round"; }
done
# Everything once more from the server, not from what the kernel remembers.
sha256sum /mnt/disk/round* >/tmp/sums || fail "read"
umount /mnt/disk || fail "umount"
iscsi_logout || fail "logout"
login "$PORTAL" || fail "second login"
wait_disks 1 || fail "no disk after the second login"
disk=/dev/$(iscsi_disks | head -1)
case $FS in
    ext4) e2fsck -fn "$disk" || fail "e2fsck" ;;
    xfs) xfs_repair -n "$disk" >/tmp/xfs 2>&1 || { cat /tmp/xfs; fail "xfs_repair"; } ;;
esac
mount "$disk" /mnt/disk || fail "mount again"
sha256sum -c --quiet /tmp/sums || fail "sums differ"
umount /mnt/disk || fail "umount again"
iscsi_logout || fail "second logout"
no_io_errors || fail "the kernel saw I/O errors"
echo "DONE $round rounds"
