#!/bin/sh
# For one of many machines that share this folder: measures whenever the file go.go is there, all of them at once.
#   worker.sh [NODE]     NODE names its results, the machine's name if it is left out
# What is measured stands in large.sh and small.sh, which may be changed while all machines run.
set -eu
cd "$(dirname "$0")"
node=${1:-$(hostname)}
pause=${PAUSE:-10}
while [ ! -e stop ]; do
    if [ -e go.go ]; then
        echo "Starting large IO..."
        ./large.sh >"large$node.txt"
        echo "Pausing $pause seconds..."
        sleep "$pause"
        echo "Starting small IO..."
        ./small.sh >"small$node.txt"
        echo "Pausing $pause seconds..."
        sleep "$pause"
    fi
    echo "node $node is waiting..."
    sleep 1
done
