#!/bin/sh
# What worker.sh measures then: smaller random reads.
exec sqlio -s20 -T100 -t4 -o16 -b32 -BN -LS -frandom -dE testfile.dat
