"""Measures SMB against Debian's smbd on the same medium, the servers taking turns, and writes docs/results/smb.md: see
run.sh."""
import json
import os
import re
import statistics
import subprocess
import sys

import chart
from machine import DISK, MEMORY, MIB, REPS, SECONDS, describe
from servers import SMB_PASSWORD, SMB_USER, HoldfastShares, Smbd

TOOL = os.path.abspath("target/release/smb_bench")
PROTECTIONS = ("none", "gmac", "gcm")
# mode, bytes, depth, protections
WORKLOADS = [("randread", 8192, 1, PROTECTIONS), ("randread", 8192, 16, PROTECTIONS), ("randwrite", 8192, 16, PROTECTIONS),
             ("seqread", 1 << 20, 4, PROTECTIONS), ("seqwrite", 1 << 20, 4, PROTECTIONS),
             ("stat", 0, 1, ("none",)), ("openclose", 0, 1, ("none",)), ("files", 4096, 1, ("none",))]
# What only a continuously available share has; no peer here does it.
CA = [("randwrite", 8192, 16, ("none",)), ("persistent", 0, 1, ("none",)), ("files", 4096, 1, ("none",))]


def measure(server, share, mode, size, depth, protection):
    """One run of smb_bench: its figures by name."""
    words = ["127.0.0.1:%d" % server.port, share, SMB_USER, SMB_PASSWORD, mode, str(size), str(depth), str(SECONDS),
             protection, str(MIB), str(server.pid())]
    done = subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=SECONDS + 120)
    found = dict(re.findall(r"(\w+)=([\d.]+)", done.stdout))
    if done.returncode != 0 or "iops" not in found:
        raise RuntimeError("%s %s: %s" % (server.name, mode, done.stderr.strip()))
    return {"iops": float(found["iops"]), "p50": float(found["p50"]), "p99": float(found["p99"]),
            "cpu": float(found["srv_cpu_us_per_io"])}


def median(rows):
    """Each figure's median, with the spread of the first."""
    speeds = sorted(row["iops"] for row in rows)
    middle = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    return dict(middle, low=speeds[0], high=speeds[-1])


def compare(medium, base, port):
    """All points on one medium."""
    points, servers = [], []
    try:
        servers = [Smbd(os.path.join(base, "smbd"), port), HoldfastShares(os.path.join(base, "holdfast"), port + 1, MIB)]
        turns = [("bench", servers, point) for point in WORKLOADS] + [("ca", servers[1:], point) for point in CA]
        for share, taking_turns, (mode, size, depth, protections) in turns:
            for protection in protections:
                rows = {server.name: [] for server in taking_turns}
                for _ in range(REPS):
                    for server in taking_turns:
                        rows[server.name].append(measure(server, share, mode, size, depth, protection))
                for name, found in rows.items():
                    point = dict(median(found), server=name, share=share, medium=medium, mode=mode, bs=size, qd=depth,
                                 protection=protection)
                    points.append(point)
                    print("%(medium)-7s%(share)-6s%(mode)-11s%(bs)8d qd%(qd)-3d%(protection)-5s%(server)-9s%(iops)9.0f/s"
                          "%(p50)8.1f us%(cpu)8.1f us CPU" % point, flush=True)
    finally:
        for server in servers:
            server.stop()
    return points


def goal(mode, bs, qd, protection, speed, cpu, wait):
    """Whether the goals of the project hold for these ratios, and what they are."""
    if mode in ("stat", "openclose", "files"):
        return speed >= 1, "speed >= smbd's"
    if bs > 65536:
        most = 0.9 if protection == "none" else 0.5
        return speed >= 1 and cpu <= most, "speed >= smbd's, CPU <= %.0f %%" % (100 * most)
    if qd >= 16:
        return speed >= 2 and cpu <= 0.5, "speed >= 2x, CPU <= 50 %"
    return wait <= 0.8, "p50 <= 0.8x"


def table(points):
    out = ["| medium | workload | protection | smbd /s | Holdfast /s | ratio | smbd p50 µs | Holdfast p50 µs | ratio "
           "| smbd CPU µs | Holdfast CPU µs | ratio | goal | met |",
           "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|"]
    for peer in points:
        if peer["server"] != "smbd":
            continue
        key = [peer[name] for name in ("medium", "mode", "bs", "qd", "protection")]
        ours = next(p for p in points if p["server"] == "holdfast" and p["share"] == "bench"
                    and [p[name] for name in ("medium", "mode", "bs", "qd", "protection")] == key)
        speed, wait, cpu = (ours[name] / peer[name] for name in ("iops", "p50", "cpu"))
        met, text = goal(peer["mode"], peer["bs"], peer["qd"], peer["protection"], speed, cpu, wait)
        out.append("| %s | %s | %s | %.0f | %.0f (%.0f–%.0f) | %.2f | %.0f | %.0f | %.2f | %.1f | %.1f | %.2f | %s | %s |" % (
            peer["medium"], name_of(peer), peer["protection"], peer["iops"], ours["iops"], ours["low"], ours["high"], speed,
            peer["p50"], ours["p50"], wait, peer["cpu"], ours["cpu"], cpu, text, "yes" if met else "**no**"))
    return out


def name_of(point):
    size = {0: "", 4096: " 4 KiB", 8192: " 8 KiB", 1 << 20: " 1 MiB"}[point["bs"]]
    return "%s%s qd%d" % (point["mode"], size, point["qd"])


def write(folder, machine, points):
    out = ["# SMB against smbd", "",
           "`bench/run.sh smb` wrote this on %(date)s at commit %(commit)s: %(cpu)s, %(cores)s cores, Linux %(kernel)s. Each figure "
           "is the median of %(reps)d runs of %(seconds)g s; the servers took turns within one run, over one connection of the "
           "same client. Client and server share the cores, so speeds are noisy and **processor time of the server per "
           "operation** is the figure to compare. On the disk smbd reads and writes the page cache, which holds all of the file, and "
           "Holdfast the disk itself: speeds there say what the medium gives, not what the server does." % machine, ""]
    out += table(points)
    out += ["", "`files`: make a file, write 4 KiB, close, open to delete, close. The share is not continuously available, as smbd's "
            "is not.", "", "## A continuously available share", "",
            "Writes are durable when they are answered, and what is open survives the server: no peer here does that.", "",
            "| medium | workload | /s | p50 µs | CPU µs |", "|---|---|--:|--:|--:|"]
    out += ["| %s | %s | %.0f (%.0f–%.0f) | %.0f | %.1f |" % (
        p["medium"], name_of(p), p["iops"], p["low"], p["high"], p["p50"], p["cpu"]) for p in points if p["share"] == "ca"]
    bars = []
    for peer in points:
        ours = [p for p in points if p["share"] == "bench" and p["server"] == "holdfast" and name_of(p) == name_of(peer)
                and p["medium"] == peer["medium"] and p["protection"] == peer["protection"]]
        if peer["server"] == "smbd" and peer["bs"] == 8192 and ours:
            bars.append(("%s %s %s" % (peer["medium"], name_of(peer), peer["protection"]), peer["cpu"], ours[0]["cpu"]))
    with open(os.path.join(folder, "smb.svg"), "w") as f:
        f.write(chart.pairs("Server CPU per 8 KiB I/O in µs: smbd (grey), Holdfast (blue)", bars))
    out += ["", "![Server CPU per I/O](smb.svg)"]
    with open(os.path.join(folder, "smb.md"), "w") as f:
        f.write("\n".join(out) + "\n")
    with open(os.path.join(folder, "smb.json"), "w") as f:
        json.dump({"machine": machine, "points": points}, f, indent=1)
        f.write("\n")


def main():
    media = {"memory": MEMORY, "disk": DISK}
    points = []
    for medium in sys.argv[1:] or list(media):
        points += compare(medium, media[medium], 24450)
    write("docs/results", describe(), points)


if __name__ == "__main__":
    main()
