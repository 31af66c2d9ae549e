#!/bin/sh
# What worker.sh measures first: large sequential reads, as data warehouses make them.
exec sqlio -s20 -T100 -t2 -o16 -b512 -BN -LS -fsequential -dE testfile.dat
