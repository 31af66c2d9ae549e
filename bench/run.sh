#!/bin/bash
# Measures Holdfast against Debian's tgt and smbd and the raw disk on this machine, interleaved, and writes docs/results/.
#
#   run.sh [PART ...]     parts: iscsi raw first-write memory recovery opening (all but smb), or
#   run.sh smb [MEDIUM ...]   media: memory disk (both), or
#   run.sh spd            the load generator against fio, or
#   run.sh storage        pools without a network: parity, checksums, repair, or
#   run.sh cluster        three nodes: disks of other nodes, forwarded commands, idling (needs etcd-server and curl)
#   run.sh metadata       first writes, small files beside smbd, opens that outlive the server (BENCH_SPAN_MIB=8192)
#   BENCH_SECONDS=8       length of one measurement
#   BENCH_REPS=5          measurements of each point; the median counts
#   BENCH_DIR=DIR         where the disk-backed files go (default: target/bench)
#
# Needs root (tgtd, smbd), gcc, libiscsi-dev and samba; `make bench` installs what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1-}" = spd ]; then
    cargo build --release --locked --quiet --package holdfast --package bench
    mkdir -p docs/results
    PYTHONDONTWRITEBYTECODE=1 exec python3 bench/spd.py
fi
cargo build --release --locked --quiet --package holdfast --package bench
mkdir -p target/bench docs/results
gcc -O2 -o target/bench/iscsibench bench/iscsibench.c -liscsi
export PYTHONDONTWRITEBYTECODE=1
if [ "${1-}" = storage ]; then
    exec python3 bench/storage.py
fi
if [ "${1-}" = cluster ]; then
    exec python3 bench/cluster.py
fi
if [ "${1-}" = metadata ]; then
    exec python3 bench/metadata.py
fi
if [ "${1-}" = smb ]; then
    shift
    exec python3 bench/smb.py "$@"
fi
exec python3 bench/run.py "$@"
