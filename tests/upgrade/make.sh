#!/bin/sh
# Makes the data of a node with a given release of Holdfast: make.sh HOLDFAST ARCHIVE
#
# The case `upgrade` starts the release under test with it; in its configuration @FOLDER@, @PORTAL@ and @SMB@ stand for what the
# test chooses. An archive is never made again: those of earlier releases are what tells that a later one can still read them.
set -eu
holdfast=$1 archive=$(realpath -m "$2")
folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir "$folder/data" "$folder/disks"
export HOLDFAST_SOCKET="$folder/data/holdfast.sock"
portal=127.0.0.1:43260 smb=127.0.0.1:43445
target=iqn.2026-11.test.holdfast:upgrade
{
    printf 'schema = 1\n\n[[portal]]\naddress = "%s"\ngroup = 1\n' "$portal"
    for disk in d1 d2 d3; do
        truncate -s 512M "$folder/disks/$disk"
        printf '\n[[disk]]\nid = "%s"\n' "$folder/disks/$disk"
    done
} >"$folder/data/config.toml"

"$holdfast" serve --shards 1 --data-dir "$folder/data" 2>"$folder/log" &
server=$!
until "$holdfast" status >"$folder/status" 2>&1; do sleep 0.2; done

"$holdfast" smb set --listen "$smb"
"$holdfast" pool create p --yes "$folder/disks/d1" "$folder/disks/d2" "$folder/disks/d3"
"$holdfast" volume create v --pool p --size 256M --resiliency mirror2
"$holdfast" target create "$target"
"$holdfast" initiator-group create all --any
"$holdfast" lun create l --volume v --size 64M
"$holdfast" lun map l --group all --target "$target"
echo 'Upgrade-of-a-node-1' | "$holdfast" user create alice --password-stdin
"$holdfast" share create docs --volume v --change alice
"$holdfast" qos policy create gold --min-iops 100 --max-iops 5000
"$holdfast" qos assign gold --lun l

qemu-io -f raw -c 'write -P 0x5a 0 1M' -c 'write -P 0xa5 33M 256k' "iscsi://$portal/$target/0"
echo 'written by an earlier release' >"$folder/note.txt"
smbclient "//127.0.0.1/docs" -p 43445 -U 'alice%Upgrade-of-a-node-1' -c "mkdir sub; put $folder/note.txt sub/note.txt"
"$holdfast" snapshot create v: before
echo 'changed after the snapshot' >"$folder/note.txt"
smbclient "//127.0.0.1/docs" -p 43445 -U 'alice%Upgrade-of-a-node-1' -c "put $folder/note.txt sub/note.txt"
"$holdfast" status

kill "$server"
wait "$server"
rm -f "$folder/data/holdfast.sock"
sed -i "s#$folder#@FOLDER@#; s#$portal#@PORTAL@#; s#$smb#@SMB@#" "$folder/data/config.toml"
tar --create --sparse --sort=name --owner=0 --group=0 --numeric-owner --directory "$folder" data disks | xz -9e >"$archive"
