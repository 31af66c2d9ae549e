"""Cache policies side by side, as the table that an owner of a RAID controller once made of his: writes docs/results/policies.md.

    policies.sh            BENCH_SECONDS, BENCH_REPS, BENCH_DIR as for run.sh; POLICY_MIB=512 is the length of each device
"""
import json
import os
import statistics
import subprocess
import sys

from chart import pairs
from machine import DISK, REPS, SECONDS, describe

TOOL = os.path.abspath("target/release/policy_bench")
MIB = int(os.environ.get("POLICY_MIB", "512"))

# "RAID5 on 3 SATA SSDs behind a MegaRAID controller", 4 KiB IOPS in thousands: what our rows are to be read beside.
CONTROLLER = [("WT, NORA, 64K Strip, Direct", 85, 14), ("WT, RA, 64K Strip, Direct", 68, 14),
              ("WT, ADRA, 64K Strip, Direct", 69, 14), ("WB, NORA, 64K Strip, Direct", 85, 12),
              ("WT, NORA, 64K Strip, Direct, FastPath", 86, 16), ("WT, NORA, 8K Strip, Direct, FastPath", 85, 16),
              ("WT, NORA, 512K Strip, Direct, FastPath", 86, 15), ("WT, NORA, 64K Strip, Cached, FastPath", 59, 16)]


def measure():
    """All policies in turn, REPS times: medians by policy and load."""
    os.makedirs(DISK, exist_ok=True)
    try:
        done = subprocess.run([TOOL, "%g" % SECONDS, str(REPS), str(MIB), DISK], capture_output=True, text=True)
    finally:
        for name in os.listdir(DISK):
            if name.startswith("policy-"):
                os.unlink(os.path.join(DISK, name))
    if done.returncode != 0:
        raise RuntimeError("policy_bench: " + done.stderr.strip())
    points = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        points.setdefault((row["policy"], row["mode"]), []).append(row)
    median = lambda rows, key: statistics.median(row[key] for row in rows)
    return [{"policy": policy, "mode": mode, "iops": median(rows, "iops"), "low": min(r["iops"] for r in rows),
             "high": max(r["iops"] for r in rows), "cpu_us": median(rows, "cpu_us")}
            for (policy, mode), rows in points.items()]


def find(points, policy, mode):
    found = [p for p in points if p["policy"] == policy and p["mode"] == mode]
    return found[0] if found else None


def figure(point):
    return "–" if point is None else "%.1f (%.1f–%.1f), %.1f µs" % (
        point["iops"] / 1000, point["low"] / 1000, point["high"] / 1000, point["cpu_us"])


def goal(text, points, ours, theirs, mode, factor):
    a, b = find(points, ours, mode), find(points, theirs, mode)
    if not a or not b or not b["iops"]:
        return "| %s | not measured | |" % text
    ratio = a["iops"] / b["iops"]
    return "| %s | %.0f / %.0f = %.1f× | %s |" % (text, a["iops"], b["iops"], ratio, "yes" if ratio >= factor else "**no**")


def write(folder, points, machine):
    policies = list(dict.fromkeys(p["policy"] for p in points))
    model = [p for p in policies if "model" in p]
    out = ["# Cache policies", "",
           "`bench/policies.sh` on %(cpu)s, %(cores)d cores, kernel %(kernel)s, %(date)s, commit %(commit)s: %(reps)d rounds of "
           "%(seconds)g s each, policies taking turns; medians (lowest–highest). The load average of the machine was %(load)s." % machine, "",
           "Spaces are two-way mirrors of two columns on four file disks of this machine's one disk, %d MiB each, without a network. "
           "4 KiB random I/O has 64 requests in flight, sequential reads of 64 KiB have one. WT: each write is durable when it is "
           "answered; WB: it is not. *Cached* goes through the read cache, emptied before each run unless the line says that it is "
           "full; *direct* does not." % MIB, "",
           "| policy | random read, thousand IOPS, CPU | random write | sequential read 64 KiB qd1 |", "|---|--:|--:|--:|"]
    for policy in policies:
        if policy not in model:
            out.append("| %s | %s | %s | %s |" % (policy, *(figure(find(points, policy, mode)) for mode in
                                                       ("randread", "randwrite", "seqread"))))
    out += ["", "A hard disk is a model here (`bench/src/bin/policy_bench/hard_disk.rs`: one arm, 8.5 ms to anywhere, 5 ms near by, "
            "180 MB/s, no seek within a track ahead), 2 GiB of it written at random; before it a log whose front is memory: "
            "what is shown is what the log makes of such a disk once it is full, not what an SSD adds.",
            "", "| policy | random write, thousand IOPS, CPU |", "|---|--:|"]
    out += ["| %s | %s |" % (policy, figure(find(points, policy, "randwrite"))) for policy in model]
    full = "WT, no read-ahead, cache full, 64K strip, cached"
    out += ["", "| goal | figures | met |", "|---|---|---|",
            goal("a hit of the read cache: ≥ 3 × the IOPS of the raw device", points, full, "raw file", "randread", 3)]
    if len(model) == 2:
        out.append(goal("4 KiB random write-through with a log: ≥ 3 × without, on a slow back", points, model[1], model[0],
                        "randwrite", 3))
    out += ["", "For comparison, a controller of 2011 (RAID 5 on three SATA SSDs, depth 64), thousand IOPS of 4 KiB:", "",
            "| setup | random read | random write |", "|---|--:|--:|"]
    out += ["| %s | %d | %d |" % row for row in CONTROLLER]
    out += ["", "![chart](policies.svg)", ""]
    rows = []
    for policy in policies:
        reads, writes = find(points, policy, "randread"), find(points, policy, "randwrite")
        if reads and writes:
            rows.append((policy, writes["iops"] / 1000, reads["iops"] / 1000))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "policies.md"), "w") as f:
        f.write("\n".join(out))
    with open(os.path.join(folder, "policies.svg"), "w") as f:
        f.write(pairs("Thousand IOPS of 4 KiB at depth 64: random write (grey), random read (blue)", rows))
    with open(os.path.join(folder, "policies.json"), "w") as f:
        json.dump({"points": points, "machine": machine}, f, indent=1)
        f.write("\n")


def main():
    load = os.getloadavg()[0]
    points = measure()
    write("docs/results", points, dict(describe(), load="%.1f before and %.1f after" % (load, os.getloadavg()[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
