#!/bin/bash
# Fuzzes every parser for a while: run.sh SECONDS_EACH [TARGET ...]
# Needs a nightly toolchain and a C++ compiler; cargo-fuzz is not needed. What libFuzzer learns stays in
# target/fuzz-corpus; a crash is left in fuzz/artifacts/TARGET and ends the run. A new seed worth keeping goes to
# fuzz/corpus/TARGET, where each `cargo test` replays it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds=${1:-60}; shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls corpus)
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1"
RUSTUP_TOOLCHAIN=nightly cargo build --release --target "$host"
for target in "${targets[@]}"; do
    mkdir -p "artifacts/$target" "../target/fuzz-corpus/$target"
    echo "== $target"
    FUZZ_TARGET=$target "target/$host/release/fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -max_len=70000 -print_final_stats=1 -artifact_prefix="artifacts/$target/" \
        "../target/fuzz-corpus/$target" "corpus/$target" 2>&1 | grep -E 'ERROR|panicked|cov:.*(DONE|pulse)|stat::(number|peak)|SUMMARY' || true
    [ -z "$(ls "artifacts/$target")" ] || { echo "$target: see fuzz/artifacts/$target"; exit 1; }
done
