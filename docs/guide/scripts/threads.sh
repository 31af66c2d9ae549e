#!/bin/sh
# Twice the threads with half the depth, from one thread with DEPTH: as many requests outstanding in each line.
#   threads.sh DEPTH diskspd|sqlio OPTIONS... FILE
set -eu
depth=$1 tool=$2 threads=1
shift 2
while [ "$depth" -ge 1 ]; do
    result=$("$tool" "-t $threads" "-o $depth" "$@")
    echo "-t $threads -o $depth, $(printf '%s\n' "$result" | "$(dirname "$0")"/figures.sh)"
    depth=$((depth / 2))
    threads=$((threads * 2))
done
