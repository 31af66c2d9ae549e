#!/bin/bash
# Measures Storage QoS and writes docs/results/qos.md; see qos.py. Needs neither root nor peers; --no-build takes what is built.
#
#   qos.sh [--no-build] [PART …]   parts: maximum minimum fairness together change cost neighbour example (all of these), and
#                                  nodes (two nodes; needs etcd-server), flows (10,000 flows for ten minutes; needs Python's smbprotocol)
#   BENCH_SECONDS=10               length of one measurement
#   BENCH_FLOWS=10000, BENCH_FLOWS_SECONDS=600
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1-}" = --no-build ]; then
    shift
else
    cargo build --release --locked --quiet --package holdfast
fi
export PYTHONDONTWRITEBYTECODE=1 BENCH_SECONDS="${BENCH_SECONDS:-10}"
case " $* " in
*" flows "*)
    tests/tools/smb_python/prepare.sh "$PWD/target/bench/smb_python"
    export BENCH_PYTHON="$PWD/target/bench/smb_python/venv/bin/python"
    ;;
esac
exec python3 bench/qos.py "$@"
