#!/bin/bash
# Makes a Debian package of a Holdfast that is built.
#
#   deb.sh BINARY FOLDER [VERSION]     writes FOLDER/holdfast_VERSION_ARCHITECTURE.deb and prints its path
#
# Without VERSION it is what the binary says. Needs dpkg-deb, and root for nothing. What the package needs of the C library is asked of
# dpkg-shlibdeps (package dpkg-dev) where it is installed; otherwise it is the C library of this machine, or newer.
set -euo pipefail
export LC_ALL=C

[ $# -ge 2 ] || { sed -n 's/^# \{0,1\}//; 2,8p' "$0" >&2; exit 2; }
binary=$(realpath "$1")
[ -x "$binary" ] || { echo "deb: $1 is no program; build it first (cargo build --release --package holdfast)" >&2; exit 1; }
mkdir -p "$2"
folder=$(realpath "$2")
version=${3:-$("$binary" --version | cut -d' ' -f2)}
architecture=$(dpkg --print-architecture)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

put() { # MODE FROM TO
    install -D -m "$1" "$2" "$root/$3"
}
put 0755 "$binary" usr/bin/holdfast
# Debug information goes with builds, not with packages.
command -v strip >/dev/null && strip "$root/usr/bin/holdfast"
put 0644 "$here/holdfast.service" usr/lib/systemd/system/holdfast.service
put 0644 "$here/prometheus/holdfast.rules.yml" usr/share/holdfast/prometheus/holdfast.rules.yml
put 0644 "$here/grafana/holdfast.json" usr/share/holdfast/grafana/holdfast.json
put 0644 "$here/../README.md" usr/share/doc/holdfast/README.md
put 0644 "$here/../LICENSE" usr/share/doc/holdfast/copyright
for page in "$here"/../docs/guide/*.md; do
    put 0644 "$page" "usr/share/doc/holdfast/guide/$(basename "$page")"
done

mkdir -p "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d,man/man1}
"$binary" completions bash >"$root/usr/share/bash-completion/completions/holdfast"
"$binary" completions zsh >"$root/usr/share/zsh/vendor-completions/_holdfast"
"$binary" completions fish >"$root/usr/share/fish/vendor_completions.d/holdfast.fish"
"$binary" man-pages "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1

# What the program is linked with: the C library and nothing else of note.
mkdir -p "$work/debian" "$root/DEBIAN"
touch "$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "$root/usr/bin/holdfast" 2>/dev/null | sed -n 's/^shlibs:Depends=//p') || true
[ -n "$depends" ] || depends="libc6 (>= $(dpkg-query -W -f '${Version}' libc6 | sed 's/-.*//'))"
size=$(du -sk --apparent-size "$root/usr" | cut -f1)
sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@DEPENDS@/$depends, init-system-helpers (>= 1.51)/" \
    "$here/debian/control" >"$root/DEBIAN/control"
for script in postinst prerm postrm; do
    install -m 0755 "$here/debian/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
find "$root" -type d -exec chmod 0755 {} +

package=$folder/holdfast_${version}_$architecture.deb
dpkg-deb -Zzstd -z9 --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
