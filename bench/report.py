"""Turns the figures of run.py into docs/results/iscsi.md and a chart."""
import json
import os

from chart import pairs

BETTER = {"iops": max, "cpu": min}


def best_peer(points, key):
    return BETTER[key](p[key] for p in points if p["server"].startswith("tgt"))


def groups(points):
    """Points of one workload on one medium with one durability, all servers together."""
    found = {}
    for p in points:
        found.setdefault((p["medium"], p["durability"], p["mode"], p["bs"], p["qd"]), []).append(p)
    return found


def goal(mode, bs, qd, speed, cpu):
    """Whether the goals of the project hold for this ratio, and what they are."""
    if bs > 65536:
        return speed >= 1, "throughput >= tgt"
    if qd >= 32:
        return speed >= 1.5 and cpu <= 0.4, "IOPS >= 1.5x, CPU <= 40 %"
    return speed >= 1 and cpu <= 0.6, "IOPS >= 1x, CPU <= 60 %"


def table(points):
    out = ["| medium | durability | workload | tgt IOPS | Holdfast IOPS | ratio | tgt CPU µs | Holdfast CPU µs | ratio | goal | met | tgt cached: IOPS, CPU µs |",
           "|---|---|---|--:|--:|--:|--:|--:|--:|---|---|---|"]
    for (medium, durability, mode, bs, qd), rows in groups(points).items():
        ours = [p for p in rows if p["server"] == "holdfast"]
        if not ours:
            continue
        ours = ours[0]
        iops, cpu = best_peer(rows, "iops"), best_peer(rows, "cpu")
        speed, cost = ours["iops"] / iops, ours["cpu"] / cpu
        met, text = goal(mode, bs, qd, speed, cost)
        cached = ["%.0f, %.1f" % (p["iops"], p["cpu"]) for p in rows if p["server"] == "cached"]
        out.append("| %s | %s | %s %d KiB qd%d | %.0f | %.0f (%.0f–%.0f) | %.2f | %.1f | %.1f | %.2f | %s | %s | %s |" % (
            medium, durability, mode, bs // 1024, qd, iops, ours["iops"], ours["low"], ours["high"], speed, cpu,
            ours["cpu"], cost, text, "yes" if met else "**no**", "".join(cached)))
    return out


def cpu_chart(points):
    """Server CPU per I/O: a bar for tgt's better mode and one for Holdfast per workload."""
    rows = []
    for (medium, durability, mode, bs, qd), group in groups(points).items():
        ours = [p["cpu"] for p in group if p["server"] == "holdfast"]
        if bs == 4096 and ours:
            rows.append(("%s %s %s qd%d" % (medium, durability, mode, qd), best_peer(group, "cpu"), ours[0]))
    return pairs("Server CPU per 4 KiB I/O in µs: tgt (grey, better mode), Holdfast (blue)", rows)


def write(folder, results):
    os.makedirs(folder, exist_ok=True)
    m = results["machine"]
    out = ["# Holdfast and its peers on one machine", "",
           "`make bench` wrote this on %(date)s at commit %(commit)s: %(cpu)s, %(cores)s cores, Linux %(kernel)s. Each figure is "
           "the median of %(reps)d runs of %(seconds)g s; the peers took turns within one run. Client and server share the "
           "cores, so IOPS are noisy and **CPU of the server process per I/O** is the figure to compare." % m, ""]
    note = lambda name: ["", "Not measured: %s" % results[name]["error"], ""] if "error" in results[name] else None
    if "iscsi" in results:
        out += ["## iSCSI against tgt", "", "tgt's better mode at each point: `rdwr` (with O_SYNC for write-through), and `aio` where it can keep the same promise. On the disk tgt uses O_DIRECT as Holdfast does, so that both read the disk; the last column shows tgt reading from the page cache instead.", ""]
        out += note("iscsi") or table(results["iscsi"]["points"])
        svg = cpu_chart(results["iscsi"].get("points", []))
        if svg:
            with open(os.path.join(folder, "iscsi.svg"), "w") as f:
                f.write(svg)
            out += ["", "![Server CPU per I/O](iscsi.svg)"]
        out.append("")
    if "raw" in results:
        out += ["## Spaces against the raw disk", "",
                "fio io_uring on a file (O_DIRECT, O_SYNC for writes), and the same disk through BlockDevice without a network, 4 KiB, "
                "depth 32. Goals: simple >= 0.90 of raw, mirror2 writes >= 0.45.", ""]
        out += note("raw") or ["| workload | raw | one disk | simple | ratio | mirror2 | ratio |", "|---|--:|--:|--:|--:|--:|--:|"] + [
            "| %s | %.0f | %.0f | %.0f | %.2f | %.0f | %.2f |" % (
                r["mode"], r["raw"], r["local"], r["simple"], r["simple"] / r["raw"], r["mirror2"], r["mirror2"] / r["raw"])
            for r in results["raw"]["rows"]]
        out.append("")
    out += ["## Other figures", ""]
    if "first-write" in results:
        r = results["first-write"]
        out += note("first-write") or ["* First writes to a thin LUN, 4 KiB random, write-through, depth 32: %.0f IOPS, overwrites %.0f: "
                                       "%.0f %% (goal 50 %%)." % (r["first"], r["overwrite"], 100 * r["first"] / r["overwrite"])]
    if "memory" in results:
        r = results["memory"]
        out += note("memory") or ["* Memory of an idle node with 1 pool, %d LUNs, %d sessions: %.0f MiB resident (%.0f MiB before; goal 200)."
                                  % (r["luns"], r["sessions"], r["mib"], r["empty_mib"])]
    if "recovery" in results:
        r = results["recovery"]
        out += note("recovery") or ["* kill -9 under load to the first answered read: median %.2f s, worst %.2f s (goal 2 s)."
                                    % (r["seconds"], r["worst"])]
    if "opening" in results:
        r = results["opening"]
        out += note("opening") or [
            "* Opening a volume with %d extents on a mirror, %s: %.0f ms, %.0f MiB (goal 1 s); then the file that has them "
            "all: %.0f ms." % (r["extents"], {"open": "closed before", "crash": "left open"}[row["how"]],
                               row["open_ms"], row["open_mib"], row["file_ms"]) for row in r["rows"]]
    with open(os.path.join(folder, "iscsi.md"), "w") as f:
        f.write("\n".join(out) + "\n")
    with open(os.path.join(folder, "iscsi.json"), "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")
