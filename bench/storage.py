"""What the storage engine costs, without a network: kernels, whole stripes, checksums, repair. Writes docs/results/storage.md.

    run.sh storage         BENCH_SECONDS, BENCH_REPS, BENCH_DIR, BENCH_MIB as for run.sh
"""
import json
import os
import re
import statistics
import subprocess
import sys

from chart import pairs
from machine import DISK, MIB, REPS, SECONDS, describe


def tool(name, *words, limit=600):
    """The figures that a tool prints as `name=value`."""
    done = subprocess.run([os.path.abspath("target/release/" + name), *map(str, words)], capture_output=True, text=True, timeout=limit)
    if done.returncode != 0:
        raise RuntimeError("%s %s: %s" % (name, words, done.stderr.strip()))
    return {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", done.stdout)}


def in_turns(runs):
    """Each of `runs` (name, function) REPS times, taking turns: median, lowest and highest of every figure."""
    got = {name: [] for name, _ in runs}
    for turn in range(REPS):
        print("turn %d of %d: %s" % (turn + 1, REPS, ", ".join(got)), flush=True)
        for name, run in runs:
            got[name].append(run())
    return {name: {key: (statistics.median(r[key] for r in rows), min(r[key] for r in rows), max(r[key] for r in rows))
                   for key in rows[0]} for name, rows in got.items()}


def raw_write():
    """fio, 1 MiB at a time to a new file past the page cache, eight under way, durable at the end."""
    path = os.path.join(DISK, "raw.img")
    done = subprocess.run(["fio", "--name=raw", "--filename=" + path, "--size=%dM" % MIB, "--bs=1m", "--rw=write", "--direct=1",
                           "--ioengine=io_uring", "--iodepth=8", "--fallocate=none", "--end_fsync=1", "--output-format=json"],
                          capture_output=True, text=True, check=True)
    os.unlink(path)
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["write"]
    return {"mib_per_s": MIB / (job["runtime"] / 1000)}


def measure():
    os.makedirs(DISK, exist_ok=True)
    bench = lambda kind, mode, depth: lambda: tool("bench", kind, mode, depth, max(1, int(SECONDS)), MIB, DISK)
    try:
        return {
            "kernels": in_turns([("kernels", lambda: tool("kernel_bench", min(SECONDS, 2)))])["kernels"],
            "stripes": in_turns([("raw", raw_write)] + [(kind, bench(kind, "seqwrite", 8))
                                                        for kind in ("local", "simple", "mirror2", "parity1", "parity2")]),
            "checksums": {mode: in_turns([(kind, bench(kind, mode, 32)) for kind in ("mirror2-unchecked", "mirror2")])
                          for mode in ("randread", "randwrite")},
            "small": in_turns([(kind, bench(kind, "randwrite", 32)) for kind in ("mirror2", "parity1", "parity2")]),
            "repair": in_turns([(how, lambda how=how: tool("repair_bench", how, MIB, DISK)) for how in ("idle", "loaded")]),
        }
    finally:
        for name in os.listdir(DISK):
            if name.startswith("bench-disk") or name == "raw.img":
                os.unlink(os.path.join(DISK, name))


def show(figure, form="%.0f"):
    return "%s (%s–%s)" % tuple(form % value for value in figure)


def goal(text, value, form, met):
    return "| %s | %s | %s |" % (text, form % value, "yes" if met else "**no**")


# How much of what is written to a kind of space is data: its disks are files of one disk.
SHARE = {"local": 1, "simple": 1, "mirror2": 1 / 2, "parity1": 4 / 5, "parity2": 4 / 6}


def write(folder, got, machine):
    kernels, stripes, checks, repair = got["kernels"], got["stripes"], got["checksums"], got["repair"]
    mid = lambda figures, key: figures[key][0]
    # Whichever of the two gets more out of the disk: it is what a space could have.
    raw = max(mid(stripes["raw"], "mib_per_s"), mid(stripes["local"], "mib_per_s"))
    out = ["# The storage engine", "",
           "`bench/run.sh storage` on %(cpu)s, %(cores)d cores, kernel %(kernel)s, %(date)s, commit %(commit)s: medians of %(reps)d runs "
           "(lowest–highest), taking turns. The load average of the machine was %(load)s." % machine, "",
           "All disks are files of one disk, so a space's bandwidth is compared with that disk's (fio's or our own, the better one) times the share of "
           "what is written that is data. %d MiB each; without a network." % MIB, "",
           "| goal | figure | met |", "|---|--:|---|"]
    for key, name in (("sums_gb_s", "checksums of 4 KiB blocks, one core: ≥ 5 GB/s"), ("p_gb_s", "single parity, one core: ≥ 5 GB/s"),
                      ("pq_gb_s", "dual parity, one core: ≥ 5 GB/s")):
        out.append(goal(name, mid(kernels, key), "%.1f GB/s", mid(kernels, key) >= 5))
    for kind in ("parity1", "parity2"):
        part = mid(stripes[kind], "mib_per_s") / (raw * SHARE[kind])
        out.append(goal("whole stripes of %s into new space: ≥ 70 %% of raw × data share" % kind, part * 100, "%.0f %%", part >= 0.7))
    for mode in ("randread", "randwrite"):
        ratio = mid(checks[mode]["mirror2"], "iops") / mid(checks[mode]["mirror2-unchecked"], "iops")
        out.append(goal("checksums cost a mirror < 10 %% of its IOPS: 4 KiB %s" % mode, (1 - ratio) * 100, "%.1f %%", ratio > 0.9))
    # One disk is read and written at once where a repair has one of each.
    speed = mid(repair["idle"], "mib_per_s") / (raw / 2)
    out.append(goal("repair without load: ≥ 60 % of the disks' speed (half of one disk that is read and written)", speed * 100, "%.0f %%", speed >= 0.6))
    growth = mid(repair["loaded"], "during_p99_us") / mid(repair["loaded"], "before_p99_us")
    out.append(goal("clients' p99 during repair: < 2 ×", growth, "%.2f ×", growth < 2))
    out += ["", "| space | sequential write, MiB/s | of raw × share | CPU ms per GiB |", "|---|--:|--:|--:|",
            "| raw disk (fio) | %s | | |" % show(stripes["raw"]["mib_per_s"])]
    for kind, share in SHARE.items():
        part = mid(stripes[kind], "mib_per_s") / (raw * share)
        out.append("| %s | %s | %.2f | %s |" % (kind, show(stripes[kind]["mib_per_s"]), part, show(stripes[kind]["cpu_ms_per_gib"])))
    out += ["", "| 4 KiB, depth 32 | IOPS | CPU µs each |", "|---|--:|--:|"]
    for mode in ("randread", "randwrite"):
        for kind, figures in checks[mode].items():
            out.append("| %s %s | %s | %s |" % (kind, mode, show(figures["iops"]), show(figures["cpu_us_per_io"], "%.1f")))
    for kind in ("parity1", "parity2"):
        out.append("| %s randwrite | %s | %s |" % (kind, show(got["small"][kind]["iops"]), show(got["small"][kind]["cpu_us_per_io"], "%.1f")))
    out += ["", "| repair of a mirror | MiB/s | clients' p99 before, µs | during, µs |", "|---|--:|--:|--:|",
            "| without load | %s | | |" % show(repair["idle"]["mib_per_s"]),
            "| beside a client at depth 8 | %s | %s | %s |" % (show(repair["loaded"]["mib_per_s"]), show(repair["loaded"]["before_p99_us"]),
                                                               show(repair["loaded"]["during_p99_us"])),
            "", "![chart](storage.svg)", ""]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "storage.md"), "w") as f:
        f.write("\n".join(out))
    rows = [(kind, raw * share, mid(stripes[kind], "mib_per_s")) for kind, share in SHARE.items()]
    with open(os.path.join(folder, "storage.svg"), "w") as f:
        f.write(pairs("Sequential writes, MiB/s: raw disk × share of data (grey), space (blue)", rows))
    with open(os.path.join(folder, "storage.json"), "w") as f:
        json.dump(dict(got, machine=machine), f, indent=1)
        f.write("\n")


def main():
    load = os.getloadavg()[0]
    got = measure()
    write("docs/results", got, dict(describe(), load="%.1f before and %.1f after" % (load, os.getloadavg()[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
