#!/bin/bash
# Guest script: puts this guest's own root file system on /dev/vda, which is a LUN.
. /guest/lib.sh
modprobe ext4
mkfs.ext4 -qF /dev/vda || fail "mkfs"
mkdir -p /mnt/root
mount /dev/vda /mnt/root || fail "mount"
for d in bin sbin lib lib64 usr etc var root init; do
    cp -a "/$d" /mnt/root/ || fail "copy of /$d"
done
mkdir -p /mnt/root/proc /mnt/root/sys /mnt/root/dev /mnt/root/run /mnt/root/mnt /mnt/root/share /mnt/root/tmp
umount /mnt/root || fail "umount"
e2fsck -fn /dev/vda || fail "e2fsck"
echo INSTALLED
