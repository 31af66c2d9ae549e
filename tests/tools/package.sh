#!/bin/bash
# Installs, upgrades, removes and purges two versions of a package on a root of its own, with a node that serves from it.
#
#   unshare --mount --pid --fork --kill-child package.sh FOLDER FORMER.deb LATER.deb
#
# The root is this machine's with an overlay: what is written stays in FOLDER. Everything that is started ends with the script, the first
# process of its namespace. Prints what holds, line by line; the first thing that does not hold ends it, with status 1.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

folder=$1 former=$2 later=$3
data=/var/lib/holdfast
mkdir -p "$folder"/{up,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/up,workdir=$folder/work" "$folder/root"
mount -t proc proc "$folder/root/proc"
mount -t devtmpfs dev "$folder/root/dev" 2>/dev/null || mount --bind /dev "$folder/root/dev"
mount --rbind /sys "$folder/root/sys"
mount -t tmpfs run "$folder/root/run"
install -m 0644 "$former" "$folder/root/former.deb"
install -m 0644 "$later" "$folder/root/later.deb"

inside() { chroot "$folder/root" "$@"; }
holds() { # WHAT COMMAND...
    local what=$1; shift
    "$@" >"$folder/now" 2>&1 || { echo "package: does not hold: $what"; cat "$folder/now"; exit 1; }
    mv "$folder/now" "$folder/last"
    echo "holds: $what"
}
refused() { ! "$@"; }

# The way the unit starts the node, taken from the installed unit.
node=
start() {
    local line
    line=$(sed -n 's/^ExecStart=//p' "$folder/root/usr/lib/systemd/system/holdfast.service")
    # shellcheck disable=SC2086 # its words
    inside $line >>"$folder/node.log" 2>&1 &
    node=$!
    for _ in $(seq 600); do
        inside holdfast status >/dev/null 2>&1 && return
        kill -0 $node 2>/dev/null || { echo "package: the node ended"; tail -20 "$folder/node.log"; exit 1; }
        sleep 0.1
    done
    echo "package: the node does not answer"; tail -20 "$folder/node.log"; exit 1
}
stop() { kill -TERM $node; wait $node || true; }

holds "the former version is installed" inside dpkg --force-depends --force-confnew -i /former.deb
holds "it says its version" inside holdfast --version
holds "nobody else looks into the data directory" test "$(stat -c '%a %U' "$folder/root$data")" = "700 root"
holds "systemd takes the unit" inside systemd-analyze verify /usr/lib/systemd/system/holdfast.service
holds "the unit is enabled" test -L "$folder/root/etc/systemd/system/multi-user.target.wants/holdfast.service"
holds "each file has the sum that the package says" inside dpkg --verify holdfast
holds "bash takes the completions" bash -n "$folder/root/usr/share/bash-completion/completions/holdfast"
holds "there is a manual page of pool create" gzip -t "$folder/root/usr/share/man/man1/holdfast-pool-create.1.gz"

start
for disk in a b; do truncate -s 2G "$folder/root$data/disk-$disk"; done
head -c 3000000 /dev/urandom >"$folder/root/content"
holds "a pool is made" inside holdfast pool create p1 $data/disk-a $data/disk-b --yes
holds "a volume is made" inside holdfast volume create v1 --pool p1 --resiliency mirror2 --size 1G
holds "a file is put" inside holdfast file put /content v1:/content
holds "an upgrade while it serves" inside dpkg --force-depends -i /later.deb
holds "what serves goes on meanwhile" inside holdfast status
stop
start
holds "the later version has the file" inside holdfast file get v1:/content /content.back
holds "with its content" cmp "$folder/root/content" "$folder/root/content.back"
stop

holds "it is removed" inside dpkg -r holdfast
holds "the program is gone" refused test -e "$folder/root/usr/bin/holdfast"
holds "the configuration is not" test -s "$folder/root$data/config.toml"
holds "a purge of a node with pools" inside dpkg -P holdfast
holds "which says what it keeps" grep -q "is kept" "$folder/last"
holds "and keeps it" test -s "$folder/root$data/config.toml" -a -s "$folder/root$data/disk-a"
holds "installed again" inside dpkg --force-depends -i /later.deb
start
holds "the file is there still" inside holdfast file get v1:/content /content.again
holds "with its content then" cmp "$folder/root/content" "$folder/root/content.again"
stop
rm -f "$folder/root$data"/disk-*
sed -i '/^\[\[pool/,$d' "$folder/root$data/config.toml"
holds "a purge of a node without pools" inside dpkg -P holdfast
holds "leaves nothing" refused test -e "$folder/root$data"
holds "and no unit that is enabled" refused test -L "$folder/root/etc/systemd/system/multi-user.target.wants/holdfast.service"
