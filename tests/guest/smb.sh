#!/bin/bash
# Guest script: mount the share with the kernel's client and use it.
#   WORK=load    write and verify SIZE_MIB in four rounds, and go on until the host has made /share/hurt
#   WORK=files   FILES small files, renames, locks, appends, TORTURE random operations, and SIZE_MIB verified
# Prints READY when it works and PROGRESS when the second round of load begins.
#   WORK=steady  write for some LOAD_SECONDS into one file that stays open, and verify
#   SRV PORT SHARE SMB_USER SMB_PASS OPTS
. /guest/lib.sh
mkdir -p /mnt/smb
mount -t cifs "//$SRV/$SHARE" /mnt/smb \
    -o "port=$PORT,vers=3.1.1,username=$SMB_USER,password=$SMB_PASS,cache=strict,$OPTS" || { dmesg | tail -20; fail "mount"; }
grep ' /mnt/smb ' /proc/mounts

load() {
    part=$((SIZE_MIB / 4))
    round=0
    while [ $round -lt 4 ] || [ ! -e /share/hurt ]; do
        round=$((round + 1))
        [ $round -lt 60 ] || fail "the host never answered"
        case $round in 1) echo READY ;; 2) echo PROGRESS ;; esac
        fio_verify "/mnt/smb/round$((round % 4))" "${part}M" --overwrite=$((round > 4)) || { dmesg | tail -20; fail "data in round $round"; }
    done
}

# What is under way on an open file when a connection breaks the kernel's client asks for once more; an open it gives up
# (EAGAIN), so none is made while the host cuts.
steady() {
    (wait_for 60 test -s /mnt/smb/steady && sleep 2 && echo READY) &
    fio_verify /mnt/smb/steady "${SIZE_MIB}M" --rate=,1600k --io_size=$((LOAD_SECONDS * 1600))k || { dmesg | tail -20; fail "data"; }
    wait_for 300 test -e /share/hurt || fail "the host never answered"
}

# One file with two names, as the server tells it: inode number, count of links, content, and what is left without one.
links() {
    echo one >/mnt/smb/first && ln /mnt/smb/first /mnt/smb/second || fail "hard link"
    set -- $(stat -c '%i %h' /mnt/smb/first /mnt/smb/second)
    [ "$1" = "$3" ] && [ "$2 $4" = "2 2" ] || fail "two names, but inode and links are $*"
    echo two >>/mnt/smb/second
    [ "$(cat /mnt/smb/first)" = "one
two" ] || fail "what is written under one name is not read under the other"
    ! ln /mnt/smb/log /mnt/smb/second 2>/dev/null || fail "a link in place of a file"
    rm /mnt/smb/first || fail "removing a name"
    [ ! -e /mnt/smb/first ] || fail "the removed name is still there"
    [ "$(stat -c '%i %h' /mnt/smb/second)" = "$3 1" ] || fail "one name left, but $(stat -c '%i %h' /mnt/smb/second)"
    [ "$(wc -l </mnt/smb/second)" -eq 2 ] || fail "the content went with the other name"
}

files() {
    echo READY
    mkdir /mnt/smb/many || fail "mkdir"
    i=0
    while [ $i -lt "$FILES" ]; do
        echo "file $i" >"/mnt/smb/many/f$i" || fail "file $i"
        i=$((i + 1))
    done
    [ "$(ls /mnt/smb/many | wc -l)" -eq "$FILES" ] || fail "the listing has another number of files"
    cat /mnt/smb/many/f* | sha256sum >/tmp/many
    i=0
    while [ $i -lt "$FILES" ]; do echo "file $i"; i=$((i + 1)); done >/tmp/expect
    cat /mnt/smb/many/f* | sort >/tmp/a; sort /tmp/expect >/tmp/b
    cmp /tmp/a /tmp/b || fail "small files differ"
    mv /mnt/smb/many/f0 "/mnt/smb/many/Ünïcode name" || fail "rename"
    [ "$(cat "/mnt/smb/many/Ünïcode name")" = "file 0" ] || fail "renamed file"
    echo one >/mnt/smb/log; echo two >>/mnt/smb/log; echo three >>/mnt/smb/log
    [ "$(wc -l </mnt/smb/log)" -eq 3 ] || fail "append"
    truncate -s 1000000 /mnt/smb/log && truncate -s 4 /mnt/smb/log || fail "truncate"
    [ "$(cat /mnt/smb/log)" = one ] || fail "truncated file"
    flock -n /mnt/smb/log true || fail "lock"
    links
    rm -r /mnt/smb/many || fail "rm"
    [ ! -e /mnt/smb/many ] || fail "the folder is still there"
    /share/torture /mnt/smb/torture "$RANDOM" "$TORTURE" 1000000 || fail "torture"
    fio_verify /mnt/smb/verify "${SIZE_MIB}M" || fail "data"
}

$WORK
# Everything once more from the server, not from what the kernel remembers.
find /mnt/smb -type f -exec sha256sum {} + >/tmp/sums || fail "read"
umount /mnt/smb || fail "umount"
mount -t cifs "//$SRV/$SHARE" /mnt/smb \
    -o "port=$PORT,vers=3.1.1,username=$SMB_USER,password=$SMB_PASS,$OPTS" || fail "second mount"
sha256sum -c --quiet /tmp/sums || fail "sums differ"
smb_debug | grep -E 'Dialect|Session Status|Encrypted|signed|Share Cap'
umount /mnt/smb || fail "second umount"
! dmesg | grep -iE 'CIFS.*(error|fail)' | grep -v 'reconnect' || fail "the kernel complains"
echo "DONE"
