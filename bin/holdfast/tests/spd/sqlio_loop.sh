#!/usr/bin/env bash
# The loop of "Tune queue depth for small IO" (March 2013), line for line:
#   1..64 | % {
#      $o = "-o $_";
#      $r = C:\SQLIO\SQLIO.EXE -s10 -kR -frandom -b8 $o -t1 -LS -BN X:\testfile.dat
#      $i = $r.Split("`n")[10].Split(":")[1].Trim()
#      $m = $r.Split("`n")[11].Split(":")[1].Trim()
#      $l = $r.Split("`n")[14].Split(":")[1].Trim()
#      $o + ", " + $i + " iops, " + $m + " MB/sec, " + $l + " ms"
#   }
set -eu
for n in $DEPTHS; do
   o="-o $n"
   r=$($SQLIO -s$SECONDS_EACH -kR -frandom -b8 "$o" -t1 -LS -BN 'X:\testfile.dat')
   i=$(echo "$r" | sed -n 11p | cut -d: -f2 | tr -d ' ')
   m=$(echo "$r" | sed -n 12p | cut -d: -f2 | tr -d ' ')
   l=$(echo "$r" | sed -n 15p | cut -d: -f2 | tr -d ' ')
   echo "$o, $i iops, $m MB/sec, $l ms"
done
