#!/bin/busybox sh
# /init of a guest that boots from the root file system on /dev/vda: loads what it takes to mount it, hands over this
# run's script, and continues as the /init that lies there.
export PATH=/usr/bin:/usr/sbin:/bin:/sbin
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for m in virtio_pci virtio_blk ext4; do modprobe "$m"; done
n=0
until [ -b /dev/vda ] || [ $n -gt 100 ]; do n=$((n + 1)); busybox sleep 0.1; done
busybox mkdir -p /newroot
busybox mount -t ext4 /dev/vda /newroot || echo "cannot mount the root disk" >/dev/ttyS0
busybox rm -rf /newroot/guest
busybox cp -a /guest /newroot/guest
busybox umount /proc /sys /dev
exec busybox switch_root /newroot /init
