#!/bin/sh
# A command line of diskspd or sqlio at each depth between FIRST and LAST: one line of figures for each.
#   depths.sh FIRST LAST diskspd|sqlio OPTIONS... FILE
set -eu
first=$1 last=$2 tool=$3
shift 3
for depth in $(seq "$first" "$last"); do
    param="-o $depth"
    result=$("$tool" "$param" "$@")
    echo "$param, $(printf '%s\n' "$result" | "$(dirname "$0")"/figures.sh)"
done
