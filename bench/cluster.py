"""What a cluster costs while nobody dies: disks of other nodes, commands that another node serves, and doing nothing. Writes docs/results/cluster.md.

    run.sh cluster         BENCH_SECONDS, BENCH_REPS as for run.sh

The demo's three nodes with their etcd run on this machine; the pools that are measured are on files in memory, of which each is one node's:

    local  mirror of two disks of n1            over   mirror of a disk of n1 and one of n2
    n1-a n1-b n2-a … n3-b   one disk each       with a LUN each, on the node that has the disk

CPU is that of the nodes' processes (not of etcd, nor of the client). What is compared takes turns.
"""
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

from chart import pairs
from failover import Cluster
from machine import MEMORY, SECONDS, describe
from servers import BINARY
from storage import in_turns, show

MIB = 512
FIRST_ADDRESS = "127.0.67.11:3260"
IDLE = 30
TICKS = os.sysconf("SC_CLK_TCK")


class Bench(Cluster):
    def __init__(self, work):
        super().__init__(BINARY, os.path.join(work, "cluster"), FIRST_ADDRESS)
        self.disks, self.luns = os.path.join(work, "disks"), {}
        os.makedirs(self.disks, exist_ok=True)

    def cli(self, node, *words):
        done = subprocess.run([BINARY, "--node", self.nodes[node]["data_dir"], "--yes", *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError("holdfast %s: %s" % (" ".join(words), done.stderr.strip()))
        return done.stdout

    def lun(self, name, disks, resiliency):
        """A pool, a volume and a LUN of one name on disks of nodes; the first disk's node makes, and has, the pool."""
        paths = []
        for number, node in enumerate(disks):
            path = os.path.join(self.disks, "%s%d" % (name, number))
            with open(path, "wb") as file:
                file.truncate((MIB + 4096) << 20)
            paths.append("%s:%s" % (self.nodes[node]["name"], path))
        self.cli(disks[0], "pool", "create", name, *paths)
        self.cli(disks[0], "volume", "create", name, "--pool", name, "--resiliency", resiliency, "--size", "%dMiB" % (MIB + 1024))
        number = 10 + len(self.luns)
        self.cli(disks[0], "lun", "create", name, "--volume", name, "--size", "%dMiB" % MIB, "--group", "everyone",
                 "--target", self.target, "--number", str(number))
        self.luns[name] = number
        self.load(disks[0], name, "seqwrite", 1 << 20, 8, MIB / 200)

    def pids(self):
        return [self.processes(node)[1] for node in range(len(self.nodes))]

    def load(self, node, name, mode, size, depth, seconds):
        """What the bench's client says of a load on a LUN, over one node's portal."""
        url = "iscsi://%s/%s/%d" % (self.nodes[node]["iscsi_address"], self.target, self.luns[name])
        done = subprocess.run([os.path.abspath("target/bench/iscsibench"), url, mode, str(size), str(depth), str(seconds)],
                              capture_output=True, text=True)
        told = {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", done.stdout)}
        if done.returncode != 0 or told["errs"]:
            raise RuntimeError("%s on %s: %s%s" % (mode, name, done.stdout, done.stderr))
        return told

    def figures(self, loads, mode, depth):
        """4 KiB loads (node, LUN) at once: latency of the first in µs, and CPU µs of all nodes for an I/O of all."""
        before, told = sum(map(cpu, self.pids())), [None] * len(loads)

        def run(number):
            told[number] = self.load(*loads[number], mode, 4096, depth, SECONDS)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(loads))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        used = sum(map(cpu, self.pids())) - before
        if None in told:
            raise RuntimeError("a load has failed")
        return {"p50": told[0]["p50"], "p99": told[0]["p99"], "iops": sum(one["iops"] for one in told),
                "cpu": used * 1e6 / sum(one["ops"] for one in told)}

    def etcd_requests(self):
        """Requests that all members of etcd have taken; messages on open streams of watches are none."""
        total = 0
        for node in self.nodes:
            keys = os.path.join(node["data_dir"], "cluster")
            address = "https://%s:7402/metrics" % node["iscsi_address"].rsplit(":", 1)[0]
            done = subprocess.run(["curl", "--silent", "--fail", "--cacert", keys + "/ca.pem", "--cert", keys + "/node.pem",
                                   "--key", keys + "/node.key", address], capture_output=True, text=True, check=True)
            total += sum(float(count) for count in re.findall(r"^grpc_server_started_total\{.*\} (\S+)$", done.stdout, re.M))
        return total

    def stop(self):
        self.demo.terminate()
        self.demo.wait()


def cpu(pid):
    """Seconds that a process has used."""
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def round_trip():
    """The time, in µs, that a 4 KiB message and a short answer take over the loopback between two processes, at the median."""
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        peer = listener.accept()[0]
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while peer.recv(4096, socket.MSG_WAITALL):
            peer.sendall(b"x" * 48)
        os._exit(0)
    asking = socket.create_connection(listener.getsockname())
    asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(5000):
        began = time.perf_counter()
        asking.sendall(b"x" * 4096)
        asking.recv(48, socket.MSG_WAITALL)
        times.append((time.perf_counter() - began) * 1e6)
    asking.close()
    os.wait()
    return statistics.median(times)


def measure(bench):
    one = lambda node, name, mode, depth: lambda: bench.figures([(node, name)], mode, depth)
    print("idle for %d s" % IDLE, flush=True)
    time.sleep(5)
    began, before, asked = time.monotonic(), [cpu(pid) for pid in bench.pids()], bench.etcd_requests()
    time.sleep(IDLE)
    seconds = time.monotonic() - began
    idle = [(cpu(pid) - old) / seconds * 100 for pid, old in zip(bench.pids(), before)]
    requests = (bench.etcd_requests() - asked - len(bench.nodes)) / seconds / len(bench.nodes)
    bench.lun("local", [0, 0], "mirror2")
    bench.lun("over", [0, 1], "mirror2")
    for node in range(3):
        for part in "ab":
            bench.lun("n%d-%s" % (node + 1, part), [node], "simple")
    own = lambda node: [(node, "n%d-%s" % (node + 1, part)) for part in "ab"]
    got = {
        "idle": idle, "requests": requests, "round_trip": round_trip(),
        "bus": {depth: in_turns([(name, one(0, name, "randwrite", depth)) for name in ("local", "over")]) for depth in (1, 32)},
        "forwarded": {mode: in_turns([("direct", one(0, "n1-a", mode, 32)), ("forwarded", one(1, "n1-a", mode, 32))])
                      for mode in ("randread", "randwrite")},
        "scale": {mode: in_turns([("one node", lambda: bench.figures(own(0), mode, 16)),
                                  ("three nodes", lambda: bench.figures(own(0) + own(1) + own(2), mode, 16))])
                  for mode in ("randread", "randwrite")},
    }
    owners = {pool["name"]: pool["owner"] for pool in bench.status(0)["pools"]}
    moved = [name for name in bench.luns if owners[name] != ("n1" if name in ("local", "over") else name[:2])]
    if moved:
        raise RuntimeError("these pools are elsewhere by now, so the figures say nothing: " + ", ".join(moved))
    return got


def write(folder, got, machine):
    mid = lambda figures, key: figures[key][0]
    ratio = lambda pair, key, new, old: mid(pair[new], key) / mid(pair[old], key)
    bus, forwarded, scale = got["bus"], got["forwarded"], got["scale"]
    latency, local = mid(bus[1]["over"], "p50"), mid(bus[1]["local"], "p50")
    goals = [
        ("4 KiB write to a mirror over two nodes, depth 1: latency ≤ 1.6 × (a local mirror + one round trip)",
         latency / (local + got["round_trip"]), "%.2f ×", lambda v: v <= 1.6),
        ("the same at depth 32: CPU of both nodes ≤ 2.2 × that of a local mirror", ratio(bus[32], "cpu", "over", "local"), "%.2f ×", lambda v: v <= 2.2),
    ]
    for mode, figures in forwarded.items():
        goals.append(("4 KiB %s that another node serves, depth 32: CPU of both nodes ≤ 1.8 × direct" % mode,
                      ratio(figures, "cpu", "forwarded", "direct"), "%.2f ×", lambda v: v <= 1.8))
    for mode, figures in scale.items():
        goals.append(("three nodes with six pools, 4 KiB %s: ≥ 2.4 × one node's IOPS (3 × the CPU of an I/O on one ÷ that on three)" % mode,
                      3 / ratio(figures, "cpu", "three nodes", "one node"), "%.2f ×", lambda v: v >= 2.4))
    goals += [("an idle node: < 1 % of a core (the busiest of three)", max(got["idle"]), "%.2f %%", lambda v: v < 1),
              ("an idle node: < 20 requests to etcd a second", got["requests"], "%.1f", lambda v: v < 20)]
    out = ["# A cluster at work", "",
           "`bench/run.sh cluster` on %(cpu)s, %(cores)d cores, kernel %(kernel)s, %(date)s, commit %(commit)s: medians of %(reps)d runs of %(seconds)g s "
           "(lowest–highest), taking turns. The load average of the machine was %(load)s." % machine, "",
           "Three nodes, their etcd and the clients share the machine, so IOPS say nothing of several machines: **CPU of all nodes' processes for an I/O** is "
           "the figure to compare. Disks are files in memory. One round trip of TCP between two processes takes %.0f µs here. Takeovers are in "
           "[failover.md](failover.md)." % got["round_trip"], "",
           "| goal | figure | met |", "|---|--:|---|"]
    out += ["| %s | %s | %s |" % (text, form % value, "yes" if met(value) else "**no**") for text, value, form, met in goals]
    out += ["", "| 4 KiB | depth | median µs | p99 µs | IOPS | CPU µs |", "|---|--:|--:|--:|--:|--:|"]
    rows = [("randwrite, mirror, " + name, depth, figures) for depth in bus for name, figures in bus[depth].items()]
    rows += [("%s, %s" % (mode, name), 32, figures) for mode, both in forwarded.items() for name, figures in both.items()]
    rows += [("%s, two pools a node, %s" % (mode, name), 16, figures) for mode, both in scale.items() for name, figures in both.items()]
    for name, depth, figures in rows:
        out.append("| %s | %d | %s | %s | %s | %s |" % (name, depth, show(figures["p50"], "%.1f"), show(figures["p99"], "%.1f"), show(figures["iops"]), show(figures["cpu"], "%.1f")))
    out += ["", "![CPU for an I/O](cluster.svg)", ""]
    with open(os.path.join(folder, "cluster.md"), "w") as page:
        page.write("\n".join(out))
    bars = [("mirror over two nodes, randwrite", mid(bus[32]["local"], "cpu"), mid(bus[32]["over"], "cpu"))]
    bars += [("forwarded " + mode, mid(both["direct"], "cpu"), mid(both["forwarded"], "cpu")) for mode, both in forwarded.items()]
    bars += [("three nodes " + mode, mid(both["one node"], "cpu"), mid(both["three nodes"], "cpu")) for mode, both in scale.items()]
    with open(os.path.join(folder, "cluster.svg"), "w") as picture:
        picture.write(pairs("CPU of all nodes for a 4 KiB I/O, µs: local, direct, one node (grey); over nodes (blue)", bars))
    with open(os.path.join(folder, "cluster.json"), "w") as file:
        json.dump(dict(got, machine=machine), file, indent=1)
        file.write("\n")


def main():
    load = os.getloadavg()[0]
    try:
        bench = Bench(MEMORY)
        try:
            got = measure(bench)
        finally:
            bench.stop()
    finally:
        shutil.rmtree(MEMORY, ignore_errors=True)
    write("docs/results", got, dict(describe(), load="%.1f before and %.1f after" % (load, os.getloadavg()[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
