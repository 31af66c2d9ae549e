#!/usr/bin/env bash
# The loop of "Multiple runs are better than one" (October 2014), line for line:
#   1..$truns | % {
#      $result = C:\DiskSpd\DiskSpd.exe -c1G -d10 -w0 -r -b8k -o4 -t2 -h -L C:\testfile.dat
#      foreach ($line in $result) {if ($line -like "total:*") { $total=$line; break } }
#      foreach ($line in $result) {if ($line -like "avg.*") { $avg=$line; break } }
#      $mbps = $total.Split("|")[2].Trim()
#      $iops = $total.Split("|")[3].Trim()
#      $latency = $total.Split("|")[4].Trim()
#      $cpu = $avg.Split("|")[1].Trim()
#      "Run $_, $iops iops, $mbps MB/sec, $latency ms, $cpu CPU"
#      $tiops += $iops ...
#   }
#   "Average, $aiops iops, $ambps MB/sec, $alatency ms, $acpu % CPU"
set -eu
field() { echo "$1" | cut -d'|' -f"$2" | tr -d ' '; }
sums=
for run in 1 2; do
   param="-o $run"
   result=$($DISKSPD -c4M -d$SECONDS_EACH -W0 -w0 -r -b8k "$param" -t2 -h -L 'C:\testfile.dat')
   total=$(echo "$result" | grep -m1 '^total:')
   avg=$(echo "$result" | grep -m1 '^avg\.')
   mbps=$(field "$total" 3)
   iops=$(field "$total" 4)
   latency=$(field "$total" 5)
   cpu=$(field "$avg" 2)
   echo "Run $run, $iops iops, $mbps MB/sec, $latency ms, $cpu CPU"
   sums="$sums$iops $mbps $latency ${cpu%\%}
"
done
echo -n "$sums" | awk '{i+=$1; m+=$2; l+=$3; c+=$4} END {printf "Average, %f iops, %f MB/sec, %f ms, %f %% CPU\n", i/NR, m/NR, l/NR, c/NR}'
