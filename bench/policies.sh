#!/bin/bash
# Measures cache policies side by side and writes docs/results/policies.md; see policies.py. Needs neither root nor peers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --release --locked --quiet --package bench --bin policy_bench
export PYTHONDONTWRITEBYTECODE=1
exec python3 bench/policies.py
