"""Measures `holdfast spd` against fio's io_uring on the same target, taking turns, and writes docs/results/spd.md: see
bench/run.sh. Both bind one thread, register files and buffers, and bypass the page cache where there is a disk. Over the
network it is measured against libiscsi's iscsi-perf and smbclient, on one node whose disks are in memory."""
import json
import os
import re
import resource
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from machine import DISK, MEMORY, REPS, SECONDS, describe
from servers import SMB_PASSWORD, SMB_USER, Holdfast, HoldfastShares

TOOL = os.path.abspath("target/release/holdfast")
WARM_UP = 1
MIB = 512


def timed(words):
    """Standard output of a program, and the processor seconds it took, its kernel threads' included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit("%s: %s%s" % (" ".join(words), done.stdout[-500:], done.stderr[-500:]))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, cpu


def fio(path, depth, direct, write):
    text, cpu = timed(["fio", "--name=x", "--filename=" + path, "--rw=" + ("randwrite" if write else "randread"), "--bs=4k",
                       "--iodepth=%d" % depth, "--ioengine=io_uring", "--registerfiles", "--fixedbufs",
                       "--direct=%d" % direct, "--runtime=%d" % SECONDS, "--ramp_time=%d" % WARM_UP, "--time_based",
                       "--thread", "--cpus_allowed=0", "--size=%dM" % MIB, "--norandommap", "--randrepeat=0", "--lat_percentiles=1", "--output-format=json"])
    job = json.loads(text[text.index("{"):])["jobs"][0]["write" if write else "read"]
    # From submission on, as ours.
    percentiles = job["lat_ns"]["percentile"]
    return figures(job["iops"], percentiles["50.000000"] / 1e3, percentiles["99.000000"] / 1e3, cpu)


def spd(path, depth, direct, write, *more):
    text, cpu = timed([TOOL, "spd", "--json", "--quiet", "--yes", "-d%d" % SECONDS, "-W%d" % WARM_UP, "-r", "-b4K",
                       "-o%d" % depth, "-t1", "-a0", "-L", "-w%d" % (100 if write else 0), *(["-Su"] if direct else []), *more, path])
    span = json.loads(text)["spans"][0]
    latency = span["total"]["latency_ms"]
    return {**figures(span["total"]["iops"], latency["p50"] * 1e3, latency["p99"] * 1e3, cpu), "span": span}


def figures(iops, p50, p99, cpu):
    return {"iops": iops, "p50": p50, "p99": p99, "cpu": cpu * 1e6 / max(iops * (SECONDS + WARM_UP), 1)}


def iscsi_perf(url, depth):
    """Sequential reads of 4 KiB by libiscsi's own tool, which goes on until it is told to end."""
    done = subprocess.run(["timeout", "--signal=INT", "%g" % (SECONDS + WARM_UP), "iscsi-perf", "-m", str(depth), "-b", "8", url],
                          capture_output=True, text=True)
    averages = re.findall(r"iops average (\d+)", done.stdout)
    if not averages:
        sys.exit("iscsi-perf: %s%s" % (done.stdout[-500:], done.stderr[-500:]))
    return float(averages[-1])


def spd_remote(url, *words):
    """The sums of a run on a target of the network."""
    env = dict(os.environ, HOLDFAST_SPD_PASSWORD=SMB_PASSWORD)
    done = subprocess.run([TOOL, "spd", "--json", "--quiet", "--yes", "-d%d" % SECONDS, "-W%d" % WARM_UP, "-t1", *words, url],
                          capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit("%s: %s%s" % (url, done.stdout[-500:], done.stderr[-500:]))
    return json.loads(done.stdout)["spans"][0]["total"]


def smbclient(port, command):
    """MiB/s that smbclient tells of a transfer."""
    done = subprocess.run(["smbclient", "//127.0.0.1/bench", "-p", str(port), "-U", "%s%%%s" % (SMB_USER, SMB_PASSWORD), "-c", command],
                          capture_output=True, text=True)
    told = re.search(r"\(([\d.]+) (?:KiloBytes/sec|kb/s)\)", done.stdout + done.stderr)
    if not told:
        sys.exit("smbclient: %s%s" % (done.stdout[-500:], done.stderr[-500:]))
    return float(told.group(1)) / 1024


def network():
    """What is measured over a protocol: name, unit, the peer's and ours, medians."""
    rows = []

    def compare(name, unit, theirs, ours):
        runs = pairs(theirs, ours)
        ratios = sorted(our / their for their, our in runs)
        row = [name, unit, *(statistics.median(run[side] for run in runs) for side in (0, 1)), ratios]
        print(row, file=sys.stderr, flush=True)
        rows.append(row)

    node = Holdfast(os.path.join(MEMORY, "lun"), 13260, MIB)
    try:
        spd_remote(node.url, "-b1M", "-w100", "-o4")
        for depth in (1, 16, 64):
            compare("iscsi-perf: 4 KiB reads of a LUN, depth %d" % depth, "IOPS", lambda: iscsi_perf(node.url, depth),
                    lambda: spd_remote(node.url, "-b4K", "-o%d" % depth)["iops"])
    finally:
        node.stop()
    node = HoldfastShares(os.path.join(MEMORY, "share"), 14450, 2 * MIB)
    local = os.path.join(MEMORY, "local")
    try:
        with open(local, "wb") as f:
            f.write(os.urandom(1 << 20) * MIB)
        share = "smb://%s@127.0.0.1:14450/bench/" % SMB_USER
        smbclient(14450, "put %s there" % local)
        ours = lambda write: lambda: spd_remote(share + "there", "-b1M", "-o8", "-w%d" % write)["bytes_per_second"] / (1 << 20)
        compare("smbclient: get of a file in a share, spd reads 1 MiB at depth 8", "MiB/s",
                lambda: smbclient(14450, "get there /dev/null"), ours(0))
        compare("smbclient: put of a file in a share, spd writes 1 MiB at depth 8", "MiB/s",
                lambda: smbclient(14450, "put %s there" % local), ours(100))
    finally:
        node.stop()
        if os.path.exists(local):
            os.remove(local)
    return rows


def pairs(theirs, ours):
    """What each of the two gives, measured one after the other, REPS times. They take turns in being first: a disk that has
    rested is faster, and one whose host lets it burst is so for whoever comes first."""
    runs = []
    for turn in range(REPS):
        first, second = (theirs, ours) if turn % 2 == 0 else (ours, theirs)
        one, other = first(), second()
        runs.append((one, other) if turn % 2 == 0 else (other, one))
    return runs


def spread(ratios):
    """The median of the pairs' ratios, the lowest and the highest."""
    return "%.3f (%.2f–%.2f)" % (statistics.median(ratios), ratios[0], ratios[-1])


def median(runs, name):
    return statistics.median(run[name] for run in runs)


def main():
    os.makedirs(DISK, exist_ok=True)
    os.makedirs(MEMORY, exist_ok=True)
    media = [("file", os.path.join(DISK, "spd"), 1), ("memory", os.path.join(MEMORY, "spd"), 0)]
    loop = None
    rows, rates, engine = [], [], []
    try:
        for _, path, _ in media:
            timed([TOOL, "spd", "--yes", "--quiet", "-c%dM" % MIB, "-d1", "-W0", path])
        backing = os.path.join(DISK, "loop")
        timed([TOOL, "spd", "--yes", "--quiet", "-c%dM" % MIB, "-d1", "-W0", backing])
        made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", backing], capture_output=True, text=True)
        if made.returncode == 0:
            loop = made.stdout.strip()
            media.insert(1, ("device", loop, 1))
        else:
            print("no loop device here: %s" % made.stderr.strip(), file=sys.stderr)
        for name, path, direct in media:
            for write in (False, True):
                for depth in (1, 16, 64):
                    runs = pairs(lambda: fio(path, depth, direct, write), lambda: spd(path, depth, direct, write))
                    theirs, ours = zip(*runs)
                    row = {"medium": name, "write": write, "depth": depth}
                    for figure in ("iops", "p50", "p99", "cpu"):
                        row[figure] = [median(theirs, figure), median(ours, figure)]
                    row["span"] = {name: [pick(run[name] for run in theirs) for pick in (min, max)] for name in ("p50", "p99")}
                    row["ratios"] = sorted(our["iops"] / their["iops"] for their, our in runs)
                    rows.append(row)
                    print(row, file=sys.stderr, flush=True)
        remote = network()
        for rate in (1000, 5000):
            for arrival in ("even", "poisson"):
                span = spd(media[0][1], 64, 1, False, "--rate=%d" % rate, "--arrival=" + arrival)["span"]
                rates.append([rate, arrival, span["total"]["iops"]])
        done = subprocess.run([os.path.abspath("target/release/engine_bench"), "%d" % max(SECONDS, 1)], capture_output=True, text=True,
                              check=True)
        engine = [[int(depth), float(ns)] for depth, ns in re.findall(r"depth(\d+)_ns=([\d.]+)", done.stdout)]
    finally:
        if loop:
            subprocess.run(["losetup", "-d", loop])
        for folder in (DISK, MEMORY):
            for name in ("spd", "loop"):
                if os.path.exists(os.path.join(folder, name)):
                    os.remove(os.path.join(folder, name))
        os.rmdir(MEMORY)
    write_page(rows, rates, remote, engine)


def off(rate, got):
    """Percent that a rate is missed by."""
    return abs(got - rate) * 100 / rate


def chance(rate):
    """Percent that the number of arrivals of a Poisson process differs by from one run to the next: one standard deviation."""
    return 100 / (rate * SECONDS) ** 0.5


def goals(rows, rates, remote, engine):
    """A line for each goal: how many of the points meet it, and the one that does least."""
    lines = []

    def goal(name, figures, met):
        lines.append("| %s | %s | %s |" % (name, figures, "yes" if met else "**no**"))

    def points(name, chosen, value, meets, form, besides=""):
        """`value` of a row, where larger is worse."""
        good = [row for row in chosen if meets(value(row))]
        worst = max(chosen, key=value)
        goal(name, "%d of %d; the furthest: %s, %s at depth %d: %s" % (
            len(good), len(chosen), worst["medium"], "write" if worst["write"] else "read", worst["depth"], form(worst)) + besides,
            len(good) == len(chosen))

    for medium in dict.fromkeys(row["medium"] for row in rows):
        chosen = [row for row in rows if row["medium"] == medium]
        points("IOPS within 3 %% of fio's, or more: %s" % medium, chosen, lambda row: -statistics.median(row["ratios"]),
               lambda less: less <= -0.97, lambda row: "%.3f of fio's" % statistics.median(row["ratios"]))
    cpu = lambda row: row["cpu"][1] / row["cpu"][0]
    points("processor time of an operation at most fio's", rows, cpu, lambda ratio: ratio <= 1, lambda row: "%.2f of fio's" % cpu(row))
    for name in ("p50", "p99"):
        gap = lambda row: abs(row[name][1] / row[name][0] - 1) * 100
        like = sum(row["span"][name][0] * 0.98 <= row[name][1] <= row["span"][name][1] * 1.02 for row in rows)
        wide = statistics.median((high / low - 1) * 100 for low, high in (row["span"][name] for row in rows))
        points("%s within 2 %% of fio's" % name, rows, gap, lambda gap: gap <= 2, lambda row: "%.0f %% apart" % gap(row),
               "; %d within 2 %% of where fio's own runs lie, which differ by %.0f %%" % (like, wide))
    best = max((row for row in rows if row["medium"] == "memory" and not row["write"]), key=lambda row: row["iops"][1])
    goal("4 KiB reads of memory on one core: ≥ 600,000/s, or what fio reaches", "%.0f; fio %.0f" % (best["iops"][1], best["iops"][0]),
         best["iops"][1] >= min(600000, best["iops"][0]))
    most = max(ns for _, ns in engine)
    goal("recording an operation: < 150 ns", "%.0f ns at the most for all that the engine does" % most, most < 150)
    worst = max((off(rate, got) for rate, arrival, got in rates if arrival == "even"))
    goal("an open loop holds its rate within 0.5 %", "%.2f %% at the most" % worst, worst <= 0.5)
    for peer in ("iscsi-perf", "smbclient"):
        ratios = [(statistics.median(row[4]), row[0]) for row in remote if row[0].startswith(peer)]
        goal("not slower than %s" % peer, "%.2f × (%s)" % min(ratios), min(ratios)[0] >= 1)
    return lines


def write_page(rows, rates, remote, engine):
    out = ["# holdfast spd against fio", "",
           "`bench/run.sh spd` wrote this on %(date)s at commit %(commit)s: %(cpu)s, %(cores)s cores, Linux %(kernel)s. Medians of "
           "%(reps)s runs of %(seconds)s s each, fio and spd taking turns, and in being first; a ratio is the median of those of each "
           "pair of runs (lowest–highest); 4 KiB at random, one thread bound to one "
           "processor, io_uring with registered files and buffers. CPU is that of the program per operation, warm-up included. "
           "`device` is a loop device with direct I/O on a file of the same disk." % describe(), "",
           "| target | load | depth | fio IOPS | spd IOPS | ratio | fio p50 µs | spd p50 µs | fio p99 µs | spd p99 µs | fio CPU µs | spd CPU µs |",
           "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        out.append("| %s | %s | %d | %.0f | %.0f | %s | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f |" % (
            row["medium"], "write" if row["write"] else "read", row["depth"], *row["iops"], spread(row["ratios"]),
            *row["p50"], *row["p99"], *row["cpu"]))
    out += ["", "| goal | figures | met |", "|---|---|---|", *goals(rows, rates, remote, engine)]
    out += ["", "Over the network (loopback), against what others use there; the node's disks are in memory:", "",
            "| peer and load | unit | peer | spd | ratio |", "|---|---|--:|--:|--:|"]
    out += ["| %s | %s | %.0f | %.0f | %s |" % (*row[:4], spread(row[4])) for row in remote]
    out += ["", "Open loop, reads of the file; a Poisson process has a number of arrivals that is itself random, its standard deviation is "
            "told beside:", "", "| asked for | arrivals | measured | off by | of itself |", "|---|---|---|---|---|"]
    out += ["| %d | %s | %.1f | %.2f %% | %s |" % (rate, arrival, got, off(rate, got), "± %.2f %%" % chance(rate) if arrival == "poisson" else "")
            for rate, arrival, got in rates]
    out += ["", "What the generator itself does for each operation (choose it, count it, two histograms; no target, no system call but the "
            "clock's): " + ", ".join("%.0f ns at depth %d" % (ns, depth) for depth, ns in engine) + "."]
    with open("docs/results/spd.md", "w") as f:
        f.write("\n".join(out) + "\n")
    with open("docs/results/spd.json", "w") as f:
        json.dump({"machine": describe(), "rows": rows, "rates": rates, "remote": remote, "engine": engine}, f, indent=1)


main()
