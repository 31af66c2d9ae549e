#!/bin/bash
# newer-kernel.sh - give the test guest the newest kernel of the release's backports.
#
#   newer-kernel.sh CACHE_DIR
#
# CACHE_DIR is what build-guest.sh made. Left in CACHE_DIR/newer: the same guest with the other kernel and those of its modules that the guest
# has of its own kernel, for run-guest.sh --cache. The package is downloaded with apt, from the mirror that apt is configured for, and unpacked;
# apt's configuration and the machine stay as they are. What is there already is left as it is, and needs no network.
set -euo pipefail
export LC_ALL=C
say() { printf 'newer-kernel: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
[ $# -eq 1 ] || { sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
cache=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -s "$cache/stamp" ] || die "no guest in $cache: run build-guest.sh $cache"

exec 9>"$cache/newer.lock"
flock 9
stamp=$(cat "$cache/stamp" "$here/newer-kernel.sh" | sha256sum | cut -d' ' -f1)
out=$cache/newer
[ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ] || { say "$out is up to date"; exit 0; }
rm -rf "$out"
work=$out/work
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/root" "$work/kernel" "$work/new"

# The mirror, the release and the key are those that apt has for the release itself.
read -r mirror release <<<"$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Identifier: Packages' 'Origin: Debian' 'Component: main' |
    awk '$2 !~ /-/ { print; exit }')"
[ -n "${release:-}" ] || die "apt knows no release of Debian"
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$key] $mirror $release-backports main" >"$work/sources.list"
apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work"
     -o APT::Sandbox::User=root -o Debug::NoLocking=1)
apt-get "${apt[@]}" update
package=$(apt-cache "${apt[@]}" depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -1)
[ -n "$package" ] || die "the backports of $release have no kernel"
version=${package#linux-image-}
say "downloading $package"
(cd "$work" && apt-get "${apt[@]}" download "$package")
dpkg-deb -x "$work/$package"_*.deb "$work/kernel"

# The guest's own kmod, with the guest's own libraries.
bb=$cache/busybox
(cd "$work/root" && "$bb" cpio -id 2>/dev/null <"$cache/initramfs.cpio")
libs=$work/root/usr/lib/x86_64-linux-gnu
kmod() { "$libs/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$libs:$work/root/usr/lib" --argv0 "$1" "$work/root/usr/bin/kmod" "${@:2}"; }
kmod depmod -b "$work/kernel" "$version"
from=$work/kernel/lib/modules/$version
to=$work/new/usr/lib/modules/$version
find "$work/root/usr/lib/modules" -name '*.ko*' | sed 's,.*/,,; s,\.ko.*,,' | sort -u | while read -r module; do
    # What is built in has no file; what only the older kernel has is not needed.
    kmod modprobe -d "$work/kernel" -S "$version" --show-depends "$module" 2>/dev/null || true
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u >"$work/files"
while read -r file; do
    mkdir -p "$(dirname "$to/${file#"$from"/}")"
    target=$to/${file#"$from"/}
    case $file in
        # The guest's kmod leaves it to the kernel to unpack modules, which this one was not built to do.
        *.xz) xz -dc "$file" >"${target%.xz}" ;;
        *) cp "$file" "$target" ;;
    esac
done <"$work/files"
for module in cifs virtio_net virtio_pci 9pnet_virtio; do
    grep -q "/$module\.ko" "$work/files" || grep -q "/$module\.ko" "$from/modules.builtin" || die "$version has no module $module"
done
cp "$from"/modules.builtin "$from"/modules.builtin.modinfo "$from"/modules.order "$to/"
# kmod looks into lib, which is a link, as in the guest.
ln -s usr/lib "$work/new/lib"
kmod depmod -b "$work/new" "$version"

cp "$work/kernel/boot/vmlinuz-$version" "$out/vmlinuz"
cp "$bb" "$out/busybox"
# The kernel unpacks archives that follow one another, later ones over earlier.
{ cat "$cache/initramfs.cpio"; (cd "$work/new" && find usr -print | "$bb" cpio -o -H newc 2>/dev/null); } >"$out/initramfs.cpio"
{ echo "kernel $version"; dpkg-deb -f "$work/$package"_*.deb Package Version; } >"$out/manifest.txt"
rm -rf "$work"
echo "$stamp" >"$out/stamp"
say "done: $out, kernel $version"
