#!/bin/sh
# The same command line COUNT times, and the mean of all runs.
#   runs.sh COUNT diskspd|sqlio OPTIONS... FILE
set -eu
count=$1
shift
for run in $(seq 1 "$count"); do
    result=$("$@")
    echo "Run $run, $(printf '%s\n' "$result" | "$(dirname "$0")"/figures.sh)"
done | awk '
    { print; fflush() }
    { for (at = 3; at <= NF; at += 2) { value = $at; sub(/%/, "", value); sum[at] += value; unit[at] = $(at + 1) } fields = NF }
    END {
        line = "Average"
        for (at = 3; at <= fields; at += 2) {
            line = line (at == 3 ? ", " : " ") sprintf("%.3f", sum[at] / NR) ($at ~ /%/ ? "%" : "") " " unit[at]
        }
        print line
    }'
