#!/bin/bash
# Installs the programs that the tests drive Holdfast with, when it can (root on Debian or Ubuntu). Otherwise it says
# what is missing; the tests that need it are then counted as skipped.
#
#   prepare.sh            installs or reports; returns 0 unless an installation fails
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# program=package, each used by tests/ or bench/
needed="gcc=gcc python3=python3 iscsi-test-cu=libiscsi-bin qemu-system-x86_64=qemu-system-x86
        qemu-img=qemu-utils vhdiinfo=libvhdi-utils fio=fio tshark=tshark smbclient=smbclient rpcclient=smbclient smbtorture=samba-testsuite
        smbd=samba tgtd=tgt curl=curl openssl=openssl prometheus=prometheus promtool=prometheus ip=iproute2 iptables=iptables mke2fs=e2fsprogs
        node=nodejs npm=npm chromium=chromium etcd=etcd-server systemd-analyze=systemd"
# Sets `missing` to the packages that are.
look() {
    missing=()
    local pair
    for pair in $needed; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    # QEMU's iSCSI client and the headers that iscsibench.c is built with are not programs.
    [ -e /usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so ] || missing+=(qemu-block-extra)
    [ -e /usr/include/iscsi/iscsi.h ] || missing+=(libiscsi-dev)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
}

# Twice: where a machine has qemu-utils of a later release, qemu-block-extra of this one takes its place, and the first of
# this one is then missing.
for _ in first second; do
    look
    [ ${#missing[@]} -gt 0 ] || break
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "prepare: installing ${missing[*]}"
        opts=(-qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
        apt-get "${opts[@]}" update >/dev/null
        # A daemon that its package starts (tgt) is not wanted: the tests start their own.
        [ -e /usr/sbin/policy-rc.d ] || { printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
            chmod 755 /usr/sbin/policy-rc.d; trap 'rm -f /usr/sbin/policy-rc.d' EXIT; }
        apt-get "${opts[@]}" install --no-install-recommends "${missing[@]}" </dev/null >/dev/null
    else
        echo "prepare: not installed: ${missing[*]} (as root: apt-get install ${missing[*]}); some tests will be skipped"
        break
    fi
done

# The guest needs packages from the mirror once; later runs find it in the cache and need no network.
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && command -v qemu-system-x86_64 >/dev/null; then
    cache=${GUEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-guest}
    "$here/guest/build-guest.sh" "$cache" || echo "prepare: no test guest; the tests that need it will be skipped"
fi

# Python's SMB clients and their suites, from its package registry; once, likewise.
if python3 -c 'import ensurepip, venv' 2>/dev/null; then
    cache=${PYTHON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-python}
    "$here/smb_python/prepare.sh" "$cache" || echo "prepare: no Python clients; the tests that need them will be skipped"
fi
