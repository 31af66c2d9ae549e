#!/bin/sh
# The figures of one report of diskspd or sqlio, read from standard input, in one line.
#   diskspd -d10 -r -b8K -o8 -Sh -L X:\testfile.dat | figures.sh
set -eu
report=$(cat)
# Line N of the report, counted from 0, behind its first colon; for a run with one file.
field() { printf '%s\n' "$report" | sed -n "$(($1 + 1))s/^[^:]*://p" | tr -d ' '; }
# The first line that begins with $1, and of that what stands in the cell $2, counted from 0.
cell() { printf '%s\n' "$report" | grep -m1 "^$1" | cut -d'|' -f"$(($2 + 1))" | tr -d ' '; }

case $report in
"sqlio v"*)
    iops=$(field 10)
    mbps=$(field 11)
    latency=$(field 14)
    echo "$iops iops, $mbps MB/sec, $latency ms"
    ;;
*)
    mbps=$(cell total: 2)
    iops=$(cell total: 3)
    latency=$(cell total: 4)
    cpu=$(cell 'avg\.' 1)
    echo "$iops iops, $mbps MB/sec, $latency ms, $cpu CPU"
    ;;
esac
