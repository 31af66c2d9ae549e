"""Measures and writes docs/results/: see run.sh. Peers take turns within one run; the median of each point counts."""
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import time

import report
from machine import DISK, MEMORY, MIB, REPS, SECONDS, describe
from servers import IQN, Holdfast, Tgt, wait_for

TOOL = os.path.abspath("target/bench/iscsibench")
WORKLOADS = [("randread", 4096, 1), ("randread", 4096, 32), ("randwrite", 4096, 1), ("randwrite", 4096, 32),
             ("seqread", 524288, 4), ("seqwrite", 524288, 4)]


def measure(server, mode, size, depth, seconds=SECONDS):
    """One run of iscsibench: its figures by name."""
    done = subprocess.run([TOOL, server.url, mode, str(size), str(depth), str(seconds), str(server.pid())],
                          capture_output=True, text=True, timeout=seconds + 60)
    line = (done.stdout.strip().splitlines() or [""])[-1]
    found = dict(re.findall(r"(\w+)=([\d.]+)", line))
    if done.returncode != 0 or "iops" not in found or float(found.get("errs", "1")) > 0:
        raise RuntimeError("%s %s: %s %s" % (server.name, mode, line, done.stderr.strip()))
    return {"iops": float(found["iops"]), "MBps": float(found["MBps"]), "p50": float(found["p50"]),
            "p99": float(found["p99"]), "cpu": float(found["srv_cpu_us_per_io"])}


def median(rows):
    """The row of median IOPS, with the spread."""
    rows = sorted(rows, key=lambda r: r["iops"])
    return dict(rows[len(rows) // 2], low=rows[0]["iops"], high=rows[-1]["iops"],
                cpu=statistics.median(r["cpu"] for r in rows))


def iscsi():
    """Both media, both durabilities, all servers taking turns."""
    points = []
    for medium, base in (("memory", MEMORY), ("disk", DISK)):
        for durability in ("write-through", "write-back"):
            through = durability == "write-through"
            servers = []
            try:
                folder = lambda n: os.path.join(base, n)
                sync = ["sync"] if through else []
                if medium == "disk":
                    # The same medium: reads from the disk, not from the page cache of the server.
                    servers.append(Tgt(folder("rdwr"), 23260, MIB, "rdwr", ":".join(sync + ["direct"])))
                    # For those who wonder what the page cache gives: shown, but not the same medium.
                    servers.append(Tgt(folder("cached"), 23263, MIB, "rdwr", ":".join(sync), "cached"))
                else:
                    servers.append(Tgt(folder("rdwr"), 23260, MIB, "rdwr", ":".join(sync)))
                # tgt's aio mode opens with O_DIRECT by itself and has no synchronous writes: on a disk it is only
                # comparable without them, in memory there is nothing to be synchronous with.
                if not through or medium == "memory":
                    servers.append(Tgt(folder("aio"), 23261, MIB, "aio"))
                servers.append(Holdfast(folder("holdfast"), 23262, MIB, write_cache=not through))
                for server in servers:
                    fill(server)
                for mode, size, depth in WORKLOADS:
                    rows = {server.name: [] for server in servers}
                    for _ in range(REPS):
                        for server in servers:
                            rows[server.name].append(measure(server, mode, size, depth))
                    for server in servers:
                        point = dict(median(rows[server.name]), server=server.name, medium=medium,
                                     durability=durability, mode=mode, bs=size, qd=depth)
                        points.append(point)
                        print("%(medium)-7s%(durability)-14s%(mode)-10s%(bs)7d qd%(qd)-3d%(server)-10s"
                              "%(iops)9.0f IOPS%(cpu)8.1f us" % point, flush=True)
            finally:
                for server in servers:
                    server.stop()
    return {"points": points}


def fill(server):
    """Writes all of it once, so that no run meets a sparse LUN."""
    measure(server, "seqwrite", 524288, 8, max(6.0, MIB / 400))


def fio(path, mode, depth, size=4096):
    done = subprocess.run(
        ["fio", "--name=raw", "--filename=" + path, "--size=%dM" % MIB, "--ioengine=io_uring", "--direct=1",
         "--rw=" + mode, "--bs=%d" % size, "--iodepth=%d" % depth, "--runtime=%g" % SECONDS, "--time_based",
         "--norandommap", "--randrepeat=0", "--sync=%d" % (1 if "write" in mode else 0), "--output-format=json"],
        capture_output=True, text=True, check=True)
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    return job["write" if "write" in mode else "read"]["iops"]


def space(kind, mode, depth=32):
    """IOPS of a disk or space through BlockDevice, without a network."""
    done = subprocess.run([os.path.abspath("target/release/bench"), kind, mode, str(depth), "%d" % max(1, SECONDS), str(MIB), DISK],
                          capture_output=True, text=True, timeout=SECONDS + 120)
    if done.returncode != 0:
        raise RuntimeError("bench %s %s: %s" % (kind, mode, done.stderr.strip()))
    return float(re.search(r"iops=(\d+)", done.stdout).group(1))


def raw():
    """fio with io_uring on a file of the disk, and a disk, a simple space and a mirror through BlockDevice, taking turns."""
    os.makedirs(DISK, exist_ok=True)
    path = os.path.join(DISK, "raw.img")
    subprocess.run(["fio", "--name=fill", "--filename=" + path, "--size=%dM" % MIB, "--bs=1m", "--rw=write",
                    "--ioengine=psync", "--end_fsync=1", "--output=/dev/null"], check=True)
    try:
        rows = []
        for mode in ("randread", "randwrite"):
            got = {"raw": [], "local": [], "simple": [], "mirror2": []}
            for _ in range(REPS):
                got["raw"].append(fio(path, mode, 32))
                for kind in ("local", "simple", "mirror2"):
                    got[kind].append(space(kind, mode))
            rows.append({"mode": mode} | {name: statistics.median(values) for name, values in got.items()})
        return {"rows": rows}
    finally:
        os.unlink(path)


def first_write():
    """4 KiB random writes to a LUN that was never written, and to one that was."""
    server = Holdfast(os.path.join(DISK, "first"), 23265, MIB, disk_mib=MIB * (REPS + 2) + 8192)
    try:
        server.cli("volume", "resize", "bench", "%dMiB" % (MIB * (REPS + 2) + 4096))
        fill(server)
        written, url = [], server.url
        fresh = []
        for i in range(REPS):
            server.url = url
            written.append(measure(server, "randwrite", 4096, 32)["iops"])
            server.lun("fresh%d" % i, MIB, 10 + i)
            server.url = url.rsplit("/", 1)[0] + "/%d" % (10 + i)
            # Short, so that most blocks are met for the first time.
            fresh.append(measure(server, "randwrite", 4096, 32, min(SECONDS, 4))["iops"])
        return {"overwrite": statistics.median(written), "first": statistics.median(fresh)}
    finally:
        server.stop()


def login(port, number):
    """A session as cheap as can be: the socket of a full-feature connection."""
    keys = ("InitiatorName=iqn.2000-01.bench:i%d\0SessionType=Normal\0TargetName=%s\0AuthMethod=None\0"
            "HeaderDigest=None\0DataDigest=None\0" % (number, IQN)).encode()
    keys += b"\0" * (-len(keys) % 4)
    isid = bytes([0x80, 0, 0, 0]) + struct.pack(">H", number)
    head = struct.pack(">BBBB", 0x43, 0x87, 0, 0) + struct.pack(">I", len(keys)) + isid + b"\0\0"
    head += struct.pack(">IHHII", 1, 0, 0, 1, 0) + b"\0" * 16
    conn = socket.create_connection(("127.0.0.1", port))
    conn.sendall(head + keys)
    answer = conn.recv(4096)
    if len(answer) < 48 or answer[0] & 0x3F != 0x23 or answer[36] != 0:
        raise RuntimeError("login %d was refused: %r" % (number, answer[:48]))
    return conn


def memory():
    """Resident memory of a node with 100 LUNs and 100 sessions, idle."""
    server = Holdfast(os.path.join(DISK, "memory"), 23266, 256, disk_mib=16384)
    try:
        def resident():
            with open("/proc/%d/status" % server.pid()) as f:
                return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024
        empty = resident()
        for i in range(99):
            server.lun("idle%d" % i, 16, 100 + i)
        sessions = [login(23266, i) for i in range(100)]
        time.sleep(2)
        count = len(json.loads(server.cli("--json", "session", "list"))["items"])
        result = {"empty_mib": empty, "mib": resident(), "sessions": count, "luns": 100}
        for conn in sessions:
            conn.close()
        return result
    finally:
        server.stop()


def recovery():
    """kill -9 under load, start, first answered read."""
    server = Holdfast(os.path.join(DISK, "recovery"), 23267, MIB)
    try:
        fill(server)
        times = []
        for _ in range(REPS):
            load = subprocess.Popen([TOOL, server.url, "randwrite", "4096", "32", "30"], stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(2)
            server.kill()
            start = time.monotonic()
            server.process = subprocess.Popen(
                [os.path.abspath("target/release/holdfast"), "serve", "--data-dir", server.data],
                stdin=subprocess.DEVNULL, stdout=server.log, stderr=server.log)
            wait_for("first I/O", lambda: subprocess.run(
                [TOOL, server.url, "randread", "4096", "1", "0.01"], capture_output=True, timeout=60).returncode == 0, 60)
            times.append(time.monotonic() - start)
            load.kill()
            load.wait()
        return {"seconds": statistics.median(times), "worst": max(times)}
    finally:
        server.stop()


def opening():
    """Opening a volume with a million extents, closed before or not, and its file: milliseconds and MiB."""
    os.makedirs(DISK, exist_ok=True)
    rows = []
    for how in ("open", "crash"):
        runs = []
        for _ in range(REPS):
            done = subprocess.run([os.path.abspath("target/release/volume_bench"), how, "mirror2", "1000000", DISK],
                                  capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                raise RuntimeError("volume_bench %s: %s" % (how, done.stderr.strip()))
            runs.append({name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", done.stdout)})
        rows.append({"how": how} | {name: statistics.median(run[name] for run in runs)
                                    for name in ("open_ms", "open_mib", "file_ms", "file_mib")})
    return {"extents": 1000000, "rows": rows}


PARTS = {"iscsi": iscsi, "raw": raw, "first-write": first_write, "memory": memory, "recovery": recovery,
         "opening": opening}


def main():
    chosen = sys.argv[1:] or list(PARTS)
    results = {}
    for name in chosen:
        print("== " + name, flush=True)
        try:
            results[name] = PARTS[name]()
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            # The other parts are still worth having; the table says that this one is missing.
            results[name] = {"error": str(error)}
            print("%s: %s" % (name, error), file=sys.stderr)
    results["machine"] = describe()
    report.write("docs/results", results)
    return 1 if any("error" in r for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
