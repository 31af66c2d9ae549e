#!/bin/bash
# Measures Storage QoS and writes docs/results/qos.md; see qos.py. Needs neither root nor peers; --no-build takes what is built.
#
#   qos.sh [--no-build] [PART …]   parts: maximum minimum fairness together change cost neighbour example (all)
#   BENCH_SECONDS=10               length of one measurement
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1-}" = --no-build ]; then
    shift
else
    cargo build --release --locked --quiet --package holdfast
fi
export PYTHONDONTWRITEBYTECODE=1 BENCH_SECONDS="${BENCH_SECONDS:-10}"
exec python3 bench/qos.py "$@"
