"""What a detour costs: CPU of all nodes for a 4 KiB operation on a LUN over the node that has its pool, and over one that forwards.

usage: forward.py BINARY WORK [SECONDS]

Runs the demo's cluster and `holdfast spd` against the first pool's LUN, by turns over both nodes, three times each; the medians count. CPU is that
of all processes of the three nodes, with what they use for beats and etcd's client, which is the same in both.
"""
import json
import os
import signal
import statistics
import subprocess
import sys

FIRST = "127.0.67.11:3260"
TICKS = os.sysconf("SC_CLK_TCK")
GOAL = 1.8


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as told:
            return [int(child) for child in told.read().split()]
    except OSError:
        return []


def cpu(nodes):
    """Seconds of CPU of the nodes' processes, etcd's left out."""
    total = 0
    for node in nodes:
        for pid in [node["supervisor_pid"], *children(node["supervisor_pid"])]:
            with open("/proc/%d/stat" % pid) as told:
                fields = told.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def measure(binary, nodes, url, writes, seconds):
    command = [binary, "--json", "spd", "-b4K", "-o16", "-t1", "-r", "-w%d" % writes, "-W2", "-d%d" % seconds, url]
    before = cpu(nodes)
    done = subprocess.run(command, capture_output=True, text=True)
    used = cpu(nodes) - before
    if done.returncode:
        sys.exit("spd: %s" % done.stderr)
    totals = json.loads(done.stdout)["total"]
    # Two seconds are for warming up: CPU was used in them as well, operations were not counted.
    rate = totals["iops"]
    return used / (rate * (seconds + 2)) * 1e6, rate


def main():
    binary, work = sys.argv[1:3]
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 6
    command = [binary, "--json", "demo", "--nodes", "3", "--iscsi", FIRST, "--dir", work]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        told = json.loads(demo.stdout.readline())
        nodes = told["nodes"]
        urls = ["iscsi://%s/%s/0" % (node["iscsi_address"], told["iscsi_target"]) for node in nodes[:2]]
        subprocess.run([binary, "spd", "-b64K", "-w100", "-s", "-d5", urls[0]], check=True, capture_output=True)
        for name, writes in (("read", 0), ("write", 100)):
            runs = [[measure(binary, nodes, url, writes, seconds) for url in urls] for _ in range(3)]
            direct, forwarded = ([run[way] for run in runs] for way in (0, 1))
            micros = [statistics.median(run[0] for run in way) for way in (direct, forwarded)]
            rates = [statistics.median(run[1] for run in way) for way in (direct, forwarded)]
            print("4 KiB %s: direct %.1f us of CPU (%.0f a second), forwarded %.1f us (%.0f a second): %.2f times, goal %.1f"
                  % (name, micros[0], rates[0], micros[1], rates[1], micros[1] / micros[0], GOAL))
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.wait()


main()
