"""Measures what changes metadata (first writes, small files, opens that last, clones) and writes docs/results/metadata.md: see
run.sh. Each point is measured REPS times, all points of a table taking turns."""
import json
import os
import re
import statistics
import subprocess

import chart
from machine import DISK, MEMORY, REPS, SECONDS, describe
from servers import SMB_PASSWORD, SMB_USER, HoldfastShares, Smbd

VOLUME_BENCH = os.path.abspath("target/release/volume_bench")
SMB_BENCH = os.path.abspath("target/release/smb_bench")
SPAN_MIB = int(os.environ.get("BENCH_SPAN_MIB", "8192"))
MEDIA = {"memory": MEMORY, "disk": DISK}
CLIENTS = 16
OPENERS = 64
# pattern, depth, most that the processor time may grow, least part of an overwrite's rate, most that its p99 may grow
FIRST_WRITES = [("write", 32, 1.3, 0.8, 3), ("stream", 8, 1.3, 0.8, 3), ("clone", 32, None, 0.5, 5)]
NAMES = {"write": "thin, 4 KiB random, depth 32", "stream": "thin, 512 KiB in order, depth 8",
         "clone": "clone, 4 KiB random, depth 32"}
# random writes of 4 KiB to an empty file of 60 GiB, and the most that they may take
SPACE = [(1000, 128), (43000, 3584)]


def run(words, seconds):
    """The figures that a tool prints, by name."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(words), done.stderr.strip()))
    return {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", done.stdout)}


def medians(runs):
    return {name: statistics.median(one[name] for one in runs) for name in runs[0]}


def first_writes():
    """First writes to space that nobody wrote, and the same places again."""
    runs = {}
    for _ in range(REPS):
        for medium, folder in MEDIA.items():
            for pattern, depth, *_ in FIRST_WRITES:
                os.makedirs(folder, exist_ok=True)
                # A clone's origin is written whole before, on a medium that must hold it twice.
                span = SPAN_MIB // 4 if pattern == "clone" else SPAN_MIB
                found = run([VOLUME_BENCH, pattern, "mirror2", str(depth), "%d" % max(1, SECONDS), str(span), folder], 600)
                runs.setdefault((medium, pattern), []).append(found)
                print(medium, pattern, found, flush=True)
    return [dict(medians(found), medium=medium, pattern=pattern) for (medium, pattern), found in runs.items()]


def space():
    os.makedirs(MEMORY, exist_ok=True)
    return [dict(run([VOLUME_BENCH, "space", "mirror2", str(writes), "61440", MEMORY], 600), goal=goal)
            for writes, goal in SPACE]


def smb(server, share, mode, clients):
    """`clients` processes at the same time: operations a second of all, and the median of their median latencies in µs."""
    words = [SMB_BENCH, "127.0.0.1:%d" % server.port, share, SMB_USER, SMB_PASSWORD, mode, "4096", "1", str(SECONDS), "none", "64"]
    tools = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(clients)]
    rates, waits = [], []
    for tool in tools:
        told, error = tool.communicate(timeout=SECONDS + 120)
        found = dict(re.findall(r"(\w+)=([\d.]+)", told))
        if tool.returncode != 0 or "iops" not in found:
            raise RuntimeError("%s %s: %s" % (server.name, mode, error.strip()))
        rates.append(float(found["iops"]))
        waits.append(float(found["p50"]))
    return {"iops": sum(rates), "p50": statistics.median(waits)}


def small_files():
    """Files made, written, and deleted, by one client and by many, beside smbd; and opens that outlive the server."""
    rows = []
    for at, (medium, folder) in enumerate(MEDIA.items()):
        servers, runs = [], {}
        try:
            servers = [Smbd(os.path.join(folder, "smbd"), 24470 + 2 * at),
                       HoldfastShares(os.path.join(folder, "holdfast"), 24471 + 2 * at, 2048)]
            for _ in range(REPS):
                for server in servers:
                    shares = ["bench"] if server.name == "smbd" else ["bench", "ca"]
                    for share in shares:
                        for clients in (1, CLIENTS):
                            found = smb(server, share, "files", clients)
                            runs.setdefault((server.name, share, "files", clients), []).append(found)
                            print(medium, server.name, share, clients, found, flush=True)
                for clients in (1, OPENERS):
                    runs.setdefault(("holdfast", "ca", "persistent", clients), []).append(
                        smb(servers[1], "ca", "persistent", clients))
        finally:
            for server in servers:
                server.stop()
        rows += [dict(medians(found), medium=medium, server=server, share=share, mode=mode, clients=clients)
                 for (server, share, mode, clients), found in runs.items()]
    return rows


def met(good):
    return "yes" if good else "**no**"


def first_table(rows):
    out = ["| medium | first writes | of overwrites' rate | goal | p99, ms (overwrites) | goal | CPU µs (overwrites) | goal | database commits |",
           "|---|---|--:|---|--:|---|--:|---|--:|"]
    for row in rows:
        _, _, cost, rate, wait = next(one for one in FIRST_WRITES if one[0] == row["pattern"])
        cpu = row["first_cpu_us"] / row["over_cpu_us"]
        tail = row["first_p99_ms"] / max(row["over_p99_ms"], 0.001)
        out.append("| %s | %s | %.2f (%.0f of %.0f/s) | ≥ %.1f: %s | %.1f (%.1f) | ≤ %d ×: %s | %.1f (%.1f) | %s | %.0f |" % (
            row["medium"], NAMES[row["pattern"]], row["ratio"], row["first_iops"], row["over_iops"], rate,
            met(row["ratio"] >= rate), row["first_p99_ms"], row["over_p99_ms"], wait, met(tail <= wait),
            row["first_cpu_us"], row["over_cpu_us"], "≤ %.1f ×: %s" % (cost, met(cpu <= cost)) if cost else "", row["commits"]))
    return out


# share, clients, medium -> times smbd's rate
FILE_GOALS = {("bench", 1, "memory"): 1.5, ("bench", 1, "disk"): 1.5, ("ca", 1, "memory"): 1.0, ("ca", 1, "disk"): 0.7,
              ("bench", CLIENTS, "memory"): 2, ("bench", CLIENTS, "disk"): 2, ("ca", CLIENTS, "memory"): 2,
              ("ca", CLIENTS, "disk"): 2}


def files_table(rows):
    out = ["| medium | share | clients | smbd /s | Holdfast /s | ratio | goal | p50 µs (smbd) |", "|---|---|--:|--:|--:|--:|---|--:|"]
    for row in rows:
        if row["mode"] != "files" or row["server"] == "smbd":
            continue
        peer = next(p for p in rows if p["server"] == "smbd" and (p["medium"], p["clients"]) == (row["medium"], row["clients"]))
        ratio, goal = row["iops"] / peer["iops"], FILE_GOALS[row["share"], row["clients"], row["medium"]]
        out.append("| %s | %s | %d | %.0f | %.0f | %.2f | ≥ %.1f: %s | %.0f (%.0f) |" % (
            row["medium"], "continuously available" if row["share"] == "ca" else "plain", row["clients"], peer["iops"],
            row["iops"], ratio, goal, met(ratio >= goal), row["p50"], peer["p50"]))
    return out


def opens_table(rows):
    out = ["| medium | clients | /s | p50 ms | goal |", "|---|--:|--:|--:|---|"]
    for row in rows:
        if row["mode"] == "persistent":
            goal = 1 if row["clients"] == 1 else 2
            out.append("| %s | %d | %.0f | %.2f | ≤ %d: %s |" % (
                row["medium"], row["clients"], row["iops"], row["p50"] / 1000, goal, met(row["p50"] <= 1000 * goal)))
    return out


def write(folder, results):
    machine = results["machine"]
    out = ["# What changes metadata", "",
           "`bench/run.sh metadata` wrote this on %(date)s at commit %(commit)s: %(cpu)s, %(cores)s cores, Linux %(kernel)s. Medians of "
           "%(reps)d runs of %(seconds)g s, all points taking turns. " % machine
           + "The load average was %.1f before and %.1f after (the bench itself is part of it)." % tuple(results["load"]), "",
           "## First writes", "",
           "`volume_bench`: a volume on a mirror of two files, without a network, over %d GiB (a clone: of a file of %d GiB), each "
           "write durable. Overwrites are the same places again." % (SPAN_MIB >> 10, SPAN_MIB >> 12), ""]
    out += first_table(results["first"])
    out += ["", "## Space", "", "| random writes of 4 KiB to an empty file of 60 GiB | take, MiB | goal |", "|--:|--:|---|"]
    out += ["| %d | %.0f | ≤ %d: %s |" % (row["writes"], row["allocated_mib"], row["goal"], met(row["allocated_mib"] <= row["goal"]))
            for row in results["space"]]
    out += ["", "## Small files over SMB", "",
            "Make a file, write 4 KiB, close, open to delete, close. On the disk smbd promises nothing until it is asked to flush; a "
            "continuously available share has each of these durable before it answers. Clients are processes on the same two cores.", ""]
    out += files_table(results["files"])
    out += ["", "## Opens that outlive the server", "", "Open with a persistent handle, and close.", ""]
    out += opens_table(results["files"])
    bars = [("%s, %s" % (row["medium"], NAMES[row["pattern"]]), row["over_cpu_us"], row["first_cpu_us"]) for row in results["first"]]
    with open(os.path.join(folder, "metadata.svg"), "w") as f:
        f.write(chart.pairs("CPU of a write in µs: overwrites (grey), first writes (blue)", bars))
    out += ["", "![CPU of a first write](metadata.svg)"]
    with open(os.path.join(folder, "metadata.md"), "w") as f:
        f.write("\n".join(out) + "\n")
    with open(os.path.join(folder, "metadata.json"), "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")


def main():
    before = os.getloadavg()[0]
    results = {"machine": describe(), "first": first_writes(), "space": space(), "files": small_files()}
    results["load"] = [before, os.getloadavg()[0]]
    write("docs/results", results)


if __name__ == "__main__":
    main()
