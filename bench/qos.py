"""Storage QoS: how exactly limits are met, whether minimums hold beside neighbours, how fairly the rest is shared. Writes
docs/results/qos.md and its charts: see qos.sh.

A node of its own has file disks in memory. Load is `holdfast spd` over iSCSI, client and node on the same machine. Where a disk is to be slow,
each disk of the pool does its requests one after another, a millisecond each (`disk fault … serial`): the queue forms there, as in a hard
disk. I/Os are normalised: one for each 8 KiB begun. docs/results/qos.json has the rows by part: a part that is measured again replaces its own.
"""
import json
import os
import subprocess
import sys
import time

from chart import lines
from machine import MEMORY, SECONDS, describe
import qos_scale
from servers import BINARY, IQN, Holdfast

PORT = 13270
LUN_MIB = 16
LUNS = 33
SLOW_US, SLOW_DISKS = 1000, 4
PARTS = ("maximum", "minimum", "fairness", "together", "change", "cost", "neighbour", "example")
# Those with a node, or nodes, of their own.
APART = ("nodes", "flows")


def units(size):
    return -(-size // 8192)


def url(lun):
    return "iscsi://127.0.0.1:%d/%s/%d" % (PORT, IQN, lun)


class Load:
    """`holdfast spd` on some LUNs, by number or by address, in the background."""

    def __init__(self, luns, depth, size=4096, seconds=SECONDS, warm_up=1, interval=1000, rate=None, write=0):
        self.size = size
        words = [BINARY, "spd", "--json", "--quiet", "--yes", "-d%d" % seconds, "-W%d" % warm_up, "-t1", "-n", "-r", "-L", "-b%d" % size,
                 "-o%d" % depth, "-w%d" % write, "-D%d" % interval] + (["--rate=%d" % rate] if rate else [])
        self.began = time.monotonic()
        self.process = subprocess.Popen(words + [lun if isinstance(lun, str) else url(lun) for lun in luns],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def result(self):
        out, errors = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError("spd: " + errors[-500:])
        return json.loads(out)["spans"][0]

    def done(self):
        """Normalised IOPS, p99 in ms, and normalised I/Os of each interval."""
        span = self.result()
        each = [(r + w) * units(self.size) for r, w in zip(span["intervals"]["read"], span["intervals"]["write"])]
        return span["total"]["iops"] * units(self.size), span["total"]["latency_ms"]["p99"], each

    def by_lun(self):
        """Normalised IOPS of each LUN."""
        found = []
        span = self.result()
        for thread in span["threads"]:
            for target in thread["targets"]:
                found.append((target["read"]["count"] + target["write"]["count"]) * units(self.size) / span["seconds"])
        return found


def policy(node, name, *numbers, kind="dedicated", luns=()):
    node.cli("qos", "policy", "create", name, "--type", kind, *numbers)
    for lun in luns:
        node.cli("qos", "assign", name, "--lun", lun)


def free(node, luns):
    for lun in luns:
        node.cli("qos", "unassign", "--lun", lun)


def serial(node, micros):
    for number in range(SLOW_DISKS):
        disk = os.path.join(node.folder, "disk%d.img" % number)
        node.cli("disk", "fault", disk, *(["serial", "--delay-us", str(micros)] if micros else ["none"]))


def name(number):
    return "bench" if number == 1 else "lun%d" % number


def maximum(node, rows):
    for limit in (100, 500, 5000, 50000):
        policy(node, "max%d" % limit, "--max-iops", str(limit), luns=[name(1)])
        got, _, each = Load([1], 64 if limit > 5000 else 32).done()
        worst = max(each[1:-1] or each)
        free(node, [name(1)])
        node.cli("qos", "policy", "remove", "max%d" % limit)
        off = 100 * (got - limit) / limit
        rows.append(["maximum of %d IOPS over %d s" % (limit, SECONDS), "%.1f (%+.2f %%)" % (got, off), "±1 %", abs(off) <= 1])
        rows.append(["– the most in a window of a second, the first and the last left out", "%d (%+.1f %%)" % (worst, 100 * (worst - limit) / limit), "limit + 5 %",
                     worst <= 1.05 * limit])


def minimum(node, rows):
    serial(node, SLOW_US)
    try:
        for depth in (8, 1):
            alone, quiet, _ = Load([1], depth).done()
            promised = int(alone * 0.6)
            found = {}
            for case in ("without a policy", "with a minimum of %d" % promised):
                if "with a" in case:
                    policy(node, "min", "--min-iops", str(promised), luns=[name(1)])
                crowd = Load(range(2, 18), 64, seconds=SECONDS + 8, warm_up=0)
                time.sleep(1)
                mine = Load([1], depth, warm_up=5)
                time.sleep(4 + SECONDS / 2)
                volume = json.loads(node.cli("--json", "qos", "volume", "list"))["items"][0]
                got, p99, _ = mine.done()
                others, _, _ = crowd.done()
                found[case] = (got, p99)
                print(depth, case, round(got), "p99 %.1f ms, alone %.0f IOPS %.1f ms;" % (p99, alone, quiet), "others %.0f" % others, volume,
                      file=sys.stderr, flush=True)
            free(node, [name(1)])
            node.cli("qos", "policy", "remove", "min")
            before, after = found.values()
            what = "1 flow at depth %d (alone %.0f IOPS, p99 %.1f ms), minimum %d, beside 16 at depth 64" % (depth, alone, quiet, promised)
            rows.append([what, "%.0f; without the policy %.0f" % (after[0], before[0]), "≥ 98 %", after[0] >= 0.98 * promised])
            rows.append(["– its p99", "%.1f ms, %.1f × alone; without the policy %.1f ms" % (after[1], after[1] / quiet, before[1]),
                         "< 3 × alone", after[1] < 3 * quiet])
            rows.append(["– all 17 together, of %d" % (SLOW_DISKS * 1000000 // SLOW_US), "%.0f" % (others + after[0]), "–", None])
    finally:
        serial(node, 0)


def fairness(node, rows):
    serial(node, SLOW_US)
    try:
        kinds = ((4, 4096), (8, 8192), (64, 16384), (256, 65536))
        loads = [Load(range(2 + 8 * n, 10 + 8 * n), depth, size) for n, (depth, size) in enumerate(kinds)]
        time.sleep(SECONDS / 2)
        print("fairness", json.loads(node.cli("--json", "qos", "volume", "list"))["items"][0], file=sys.stderr, flush=True)
        rates = [rate for load in loads for rate in load.by_lun()]
        print([round(rate) for rate in rates], file=sys.stderr, flush=True)
    finally:
        serial(node, 0)
    jain = sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))
    rows.append(["32 neighbours without policies, depths 4 to 256, 4 to 64 KiB: Jain's index", "%.4f (%.0f to %.0f IOPS)" % (
        jain, min(rates), max(rates)), "≥ 0.99", jain >= 0.99])


def together(node, rows):
    """Four LUNs each on two volumes, which are on different shards."""
    node.cli("volume", "create", "second", "--pool", "bench", "--resiliency", "simple", "--size", "512MiB")
    others = list(range(LUNS + 1, LUNS + 5))
    for number in others:
        node.cli("lun", "create", name(number), "--volume", "second", "--size", "%dMiB" % LUN_MIB, "--group", "everyone",
                 "--target", IQN, "--number", str(number))
    Load(others, 2, 1 << 20, seconds=3, warm_up=0, write=100).result()
    luns = [name(n) for n in [*range(2, 6), *others]]
    policy(node, "all", "--max-iops", "4000", kind="aggregated", luns=luns)
    stay = Load(range(2, 6), 16, seconds=SECONDS + 4, interval=250)
    time.sleep(0.1)
    leave = Load(others, 16, seconds=SECONDS // 2, interval=250)
    _, _, some = leave.done()
    ended = time.monotonic() - stay.began
    _, _, each = stay.done()
    free(node, luns)
    node.cli("qos", "policy", "remove", "all")
    for number in others:
        node.cli("lun", "delete", name(number))
    node.cli("volume", "delete", "second")
    # While both run: without the first and the last half second of those that leave.
    both = sum(each[4:len(some) - 2]) / (0.25 * (len(some) - 6)) + sum(some[4:-2]) / (0.25 * (len(some) - 6))
    off = 100 * (both - 4000) / 4000
    rows.append(["aggregated maximum of 4,000 over 8 LUNs of two volumes on two shards: the sum", "%.0f (%+.2f %%)" % (both, off), "±2 %", abs(off) <= 2])
    # Warm-up is a second, which intervals do not count.
    at = int((ended - 1) / 0.25)
    after = [4 * value for value in each[at - 2:at + 8]]
    first = next((n for n, value in enumerate(each[at - 2:]) if value * 4 >= 3800), None)
    rows.append(["– four stop: the others have their share after, at most",
                 "–" if first is None else "%d ms" % max(0, (first - 1) * 250), "500 ms", first is not None and (first - 1) * 250 <= 500])
    print("after they stopped", after, file=sys.stderr)


def change(node, rows):
    policy(node, "live", "--max-iops", "500", luns=[name(1)])
    load = Load([1], 32, seconds=SECONDS, warm_up=0, interval=100)
    time.sleep(SECONDS / 2)
    asked = time.monotonic() - load.began
    node.cli("qos", "policy", "set", "live", "--max-iops", "2000")
    took = time.monotonic() - load.began - asked
    _, _, each = load.done()
    free(node, [name(1)])
    node.cli("qos", "policy", "remove", "live")
    at = int(asked / 0.1)
    first = next((n for n, value in enumerate(each[at:]) if value * 10 >= 1800), None)
    rows.append(["maximum raised from 500 to 2,000: seen in throughput after (the command itself took %d ms)" % (1000 * took),
                 "–" if first is None else "%d ms" % (100 * (first + 1)), "1 s", first is not None and first < 10])


def cost(node, rows):
    """A limit that is never reached against none: the rest of what a queue costs is in `cargo bench -p qos_gate`."""
    found = {}
    for turn in range(3):
        for limited in ((False, True) if turn % 2 == 0 else (True, False)):
            if limited:
                policy(node, "high", "--max-iops", "100000000", "--min-iops", "1", luns=[name(1)])
            got, _, _ = Load([1], 32, seconds=max(3, SECONDS // 2)).done()
            found.setdefault(limited, []).append(got)
            if limited:
                free(node, [name(1)])
                node.cli("qos", "policy", "remove", "high")
    ratios = sorted(100 * (1 - a / b) for a, b in zip(found[True], found[False]))
    rows.append(["4 KiB reads in memory, depth 32, below limits and with a minimum against none: IOPS lost, median of 3 pairs",
                 "%.1f %% (%.1f to %.1f; %.0f IOPS)" % (ratios[1], ratios[0], ratios[2], max(found[False])), "≤ 2 %", ratios[1] <= 2])


def neighbour(node, rows):
    """Noisy neighbours come after five seconds: QoS off and on."""
    serial(node, SLOW_US)
    shown, goal = [], 1000
    try:
        for case in ("off", "on"):
            if case == "on":
                policy(node, "min", "--min-iops", str(goal), luns=[name(1)])
            mine = Load([1], 8, seconds=25, warm_up=0, interval=500)
            time.sleep(5)
            crowd = Load(range(2, 18), 64, seconds=15, warm_up=0, interval=500)
            _, _, theirs = crowd.done()
            got, _, each = mine.done()
            if case == "on":
                free(node, [name(1)])
                node.cli("qos", "policy", "remove", "min")
            shown.append(("protected, QoS " + case, [(0.5 * n, 2 * value) for n, value in enumerate(each)]))
            shown.append(("16 others, QoS " + case, [(5 + 0.5 * n, 2 * value) for n, value in enumerate(theirs)]))
    finally:
        serial(node, 0)
    return lines("A LUN at depth 8, and 16 others at depth 64 that come after 5 s and go after 20 s", "normalised IOPS", shown,
                 [("minimum", goal)])


def example(node, rows):
    """Minimum 250, maximum 500, 100 MiB/s, on two disks: small requests meet the IOPS, large ones the bandwidth."""
    node.cli("qos", "set", "--unit-bytes", "1M")
    policy(node, "gold", "--min-iops", "250", "--max-iops", "500", "--max-bandwidth", "100M", luns=[name(1), name(2)])
    iops, rate = [[], []], [[], []]
    sizes = (4, 16, 64, 128, 256, 512, 1024)
    for size in sizes:
        loads = [Load([lun], 16, size << 10, seconds=max(3, SECONDS // 3)) for lun in (1, 2)]
        for number, load in enumerate(loads):
            total = load.result()["total"]
            iops[number].append((size, total["iops"]))
            rate[number].append((size, total["bytes_per_second"] / (1 << 20)))
    free(node, [name(1), name(2)])
    node.cli("qos", "policy", "remove", "gold")
    node.cli("qos", "set", "--unit-bytes", "8k")
    rows.append(["the example of the guide, with I/Os of up to 1 MiB, 4 KiB: IOPS of the two disks", "%.0f and %.0f" % (iops[0][0][1], iops[1][0][1]), "500 ± 1 %",
                 all(abs(line[0][1] - 500) <= 5 for line in iops)])
    rows.append(["– 1 MiB: MiB/s", "%.1f and %.1f" % (rate[0][-1][1], rate[1][-1][1]), "100 ± 1 %",
                 all(abs(line[-1][1] - 100) <= 1 for line in rate)])
    return lines("Minimum 250, maximum 500 IOPS, 100 MiB/s (IOPS of up to 1 MiB): two disks at sizes of 4 KiB to 1 MiB", "",
                 [("disk 1, IOPS", iops[0]), ("disk 2, IOPS", iops[1]), ("disk 1, MiB/s", rate[0]), ("disk 2, MiB/s", rate[1])],
                 [("500 IOPS", 500), ("100 MiB/s", 100)], across="KiB")


def write(folder, parts):
    """The page, from what each part has measured, and when."""
    out = ["# Storage QoS", "",
           "`bench/qos.sh`, by parts: the last run of each counts. Node and clients (`holdfast spd` over iSCSI) share the cores of one machine. Disks are "
           "files in memory; where minimums and shares are measured, %d of them, each of which does its requests one after another, a millisecond each "
           "(`holdfast disk fault … serial`), so that the volume does 4,000 a second and the queue forms in the disks. I/Os are normalised, "
           "reads." % SLOW_DISKS, "",
           "| what | measured | goal | met |", "|---|--:|--:|---|"]
    for part in PARTS + APART:
        out += ["| %s | %s | %s | %s |" % (*row[:3], "–" if row[3] is None else "yes" if row[3] else "**no**")
                for row in parts.get(part, {}).get("rows", [])]
    out += ["", "![noisy neighbours](qos.svg)", "", "![the example of the guide](qos-example.svg)", "", "Where and when:", ""]
    grouped = {}
    for part in PARTS + APART:
        if part in parts:
            grouped.setdefault(json.dumps(parts[part]["machine"], sort_keys=True), []).append(part)
    for machine, names in grouped.items():
        out.append("- %s: %%(cpu)s, %%(cores)d cores, kernel %%(kernel)s, %%(date)s, commit %%(commit)s, %%(build)s, one run of %%(seconds)g s each. "
                   "Load average of the machine %%(load)s; %%(beside)s." % ", ".join(names) % json.loads(machine))
    out += ["", "What is not measured here: 0.3 µs of processor time (what a request costs at the queue: `cargo bench -p qos_gate`, and the scheduler "
            "with 10,000 flows: `cargo bench -p qos_scheduler`)."]
    with open(os.path.join(folder, "qos.md"), "w") as f:
        f.write("\n".join(out) + "\n")
    with open(os.path.join(folder, "qos.json"), "w") as f:
        json.dump({"parts": parts}, f, indent=1)
        f.write("\n")


def beside():
    """The busiest other programs, by processor time while nothing is measured."""
    listed = subprocess.run(["ps", "-eo", "pcpu,comm", "--sort=-pcpu", "--no-headers"], capture_output=True, text=True).stdout
    sums = {}
    for line in listed.splitlines():
        cpu, comm = line.split(None, 1)
        count, sum = sums.get(comm, (0, 0))
        sums[comm] = (count + 1, sum + float(cpu))
    busy = sorted(((sum, comm, count) for comm, (count, sum) in sums.items() if sum >= 5), reverse=True)
    return "other programs at the start: " + (", ".join("%d %s" % (count, comm) for _, comm, count in busy[:6]) or "none")


def on_one_node(parts, measured):
    """Measures parts with a node whose LUNs are written already."""
    node = Holdfast(os.path.join(MEMORY, "qos"), PORT, LUN_MIB, disks=SLOW_DISKS, disk_mib=4096)
    try:
        for number in range(2, LUNS + 1):
            node.lun(name(number), LUN_MIB, number)
        # What was never written is read without a disk.
        Load(range(1, LUNS + 1), 2, 1 << 20, seconds=8, warm_up=0, write=100).result()
        for part in parts:
            print(part, file=sys.stderr, flush=True)
            rows = measured.setdefault(part, [])
            made = globals()[part](node, rows)
            if made:
                with open("docs/results/qos%s.svg" % ("" if part == "neighbour" else "-example"), "w") as f:
                    f.write(made)
    finally:
        node.stop()


def main():
    parts = sys.argv[1:] or list(PARTS)
    unknown = [part for part in parts if part not in PARTS + APART]
    if unknown:
        sys.exit("no such part: %s; there are %s" % (", ".join(unknown), " ".join(PARTS + APART)))
    load, other, measured = os.getloadavg()[0], beside(), {}
    if any(part in PARTS for part in parts):
        on_one_node([part for part in parts if part in PARTS], measured)
    if "nodes" in parts:
        qos_scale.nodes(lambda urls, seconds, interval, **more: Load(urls, 16, seconds=seconds, interval=interval, **more), measured.setdefault("nodes", []))
    if "flows" in parts:
        qos_scale.flows(os.environ["BENCH_PYTHON"], measured.setdefault("flows", []))
    for rows in measured.values():
        print("\n".join("%s | %s | %s | %s" % tuple(row) for row in rows), file=sys.stderr)
    build = "optimised build" if "/release/" in BINARY else "a build of the profile `ci`, which optimises next to nothing"
    machine = dict(describe(), build=build, load="%.1f before and %.1f after" % (load, os.getloadavg()[0]), beside=other)
    del machine["reps"]
    try:
        with open("docs/results/qos.json") as f:
            known = json.load(f).get("parts", {})
    except FileNotFoundError:
        known = {}
    known.update({part: {"rows": rows, "machine": machine} for part, rows in measured.items()})
    write("docs/results", known)
    return 0


if __name__ == "__main__":
    sys.exit(main())
