#!/bin/bash
# Guest script: QEMU's tools on images of virtual disks that lie on the share, in the formats that hypervisors use.
# The host has put qemu-img with its libraries into /share/qemu. Prints SUM and the checksum of the raw image at the end.
#   SRV PORT SHARE SMB_USER SMB_PASS OPTS SIZE_MIB
. /guest/lib.sh
cp -r /share/qemu /tmp/qemu || fail "qemu-img"
chmod -R u+x /tmp/qemu
qemu_img() { /tmp/qemu/loader --library-path /tmp/qemu /tmp/qemu/qemu-img "$@"; }
qemu_img --version | head -1 || fail "qemu-img does not run"
mkdir -p /mnt/smb
mount -t cifs "//$SRV/$SHARE" /mnt/smb \
    -o "port=$PORT,vers=3.1.1,username=$SMB_USER,password=$SMB_PASS,cache=strict,$OPTS" || { dmesg | tail -20; fail "mount"; }
cd /mnt/smb || fail "cd"

# A disk with data, holes and zeros that were written.
truncate -s "${SIZE_MIB}M" /tmp/source.raw
for at in 0 3 $((SIZE_MIB / 2)) $((SIZE_MIB - 1)); do
    dd if=/dev/urandom of=/tmp/source.raw bs=1M count=1 seek=$at conv=notrunc status=none || fail "dd"
done
dd if=/dev/zero of=/tmp/source.raw bs=1M count=1 seek=5 conv=notrunc status=none

for format in raw qcow2 vhdx; do
    image=disk.$format
    qemu_img create -q -f $format "new.$format" 10G || fail "create $format"
    qemu_img info -f $format "new.$format" | grep -q '10 GiB' || fail "info $format"
    # Past the guest's cache: what is compared has been on the server.
    qemu_img convert -t none -f raw -O $format /tmp/source.raw $image || { dmesg | tail; fail "convert to $format"; }
    if [ $format != raw ]; then
        qemu_img check -q -f $format $image || fail "check $format"
    fi
    sync
    echo 3 >/proc/sys/vm/drop_caches
    qemu_img compare -f raw -F $format /tmp/source.raw $image || fail "compare $format"
    # And back, from image to image on the share.
    qemu_img convert -T none -t none -f $format -O raw $image "back-$format.raw" || fail "convert from $format"
    cmp /tmp/source.raw "back-$format.raw" || fail "$format came back changed"
    rm "back-$format.raw" "new.$format"
    echo "$format: $(du -k $image | cut -f1) KiB of $((SIZE_MIB * 1024))"
done
qemu_img create -q -f vhdx -o subformat=fixed fixed.vhdx 16M || fail "create fixed vhdx"
qemu_img check -q -f vhdx fixed.vhdx || fail "check fixed vhdx"
# What an image over another is for: snapshots, and merging them back.
qemu_img create -q -f qcow2 -b disk.qcow2 -F qcow2 over.qcow2 || fail "create over"
qemu_img compare -f raw -F qcow2 /tmp/source.raw over.qcow2 || fail "compare over"
qemu_img snapshot -c before disk.qcow2 && qemu_img snapshot -a before disk.qcow2 || fail "snapshot"
qemu_img rebase -f qcow2 -b '' over.qcow2 && qemu_img check -q over.qcow2 || fail "rebase"
qemu_img resize -q -f raw disk.raw "+1M" || fail "resize"
truncate -s "${SIZE_MIB}M" disk.raw || fail "truncate"
cd /
umount /mnt/smb || fail "umount"
echo "SUM $(sha256sum </tmp/source.raw | cut -d' ' -f1)"
