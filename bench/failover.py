"""What a takeover costs a client: the demo's cluster, one writer over iSCSI, and an owner that dies, hangs or hands over, again and again.

usage: failover.py BINARY WORK COUNT [REPORT_DIR [KIND…]]

A client writes 64 KiB blocks, each acknowledged after a flush, with a login of its own for each (so nothing is measured that multipath would
hide); when one fails it asks the next node. A gap is the time from the fault, or the order, to the first acknowledged write after it. Its parts come
from the log of the node that took over: until it was given the pool (detect), until clients were let in (take over), until the client had its
answer (reconnect). Before each fault a file is put into the share of the pool. After each takeover all acknowledged blocks and that file are
read back, at the end all files. An interrupt ends the run early, with a report of what has been measured.
"""
import datetime
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

KINDS = {
    "killed": "process killed (its supervisor starts the next one)",
    "gone": "process and supervisor killed",
    "frozen": "process and supervisor stopped (SIGSTOP)",
    "moved": "planned move",
}
# A process that dies again and again soon after its start is started with pauses: what is measured is one that has run for a while.
HAS_RUN = 12
# A node that accepts and says nothing for so long is given up by the client: an attempt takes a tenth of it.
PATIENCE = 1
GOALS = {"killed": 1.0, "gone": 5.0, "frozen": 5.0, "moved": 2.0}
SLOTS = 512
ORDER = re.compile(r"^(\S+)\s+INFO pool (\S+), epoch (\d+): (\w+)")


class Cluster:
    def __init__(self, binary, work, first_address="127.0.66.11:3260"):
        self.binary = binary
        command = [binary, "--json", "demo", "--nodes", "3", "--iscsi", first_address, "--dir", work]
        self.demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        told = json.loads(self.demo.stdout.readline())
        self.nodes, self.target = told["nodes"], told["iscsi_target"]
        self.share, self.login = "vmstore1", "%s%%%s" % (told["user"], told["password"])
        self.work, self.files, self.frozen = work, [], []
        self.supervisors = [node["supervisor_pid"] for node in self.nodes]
        self.started = {}
        self.at = 0
        self.acknowledged = {}
        self.next = 0

    def status(self, node):
        asked = subprocess.run([self.binary, "--node", self.nodes[node]["data_dir"], "--json", "cluster", "status"],
                               capture_output=True, text=True)
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def owner(self, seen_by):
        told = self.status(seen_by)
        for pool in (told or {}).get("pools", []):
            if pool["name"] == "p1" and pool["state"] == "online":
                return next(i for i, node in enumerate(self.nodes) if node["name"] == pool["owner"]), pool["guid"]
        return None, None

    def io(self, node, *commands):
        url = "iscsi://%s/%s/0" % (self.nodes[node]["iscsi_address"], self.target)
        words = ["qemu-io", "-f", "raw"]
        for command in commands:
            words += ["-c", command]
        try:
            done = subprocess.run(words + [url], capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0 and "failed" not in done.stdout

    def write(self):
        """One acknowledged block; how often nodes were asked in vain."""
        slot, pattern = self.next % SLOTS, 1 + self.next % 250
        self.next += 1
        refused = 0
        while not self.io(self.at, "write -P %d %d 64k" % (pattern, slot << 16), "flush"):
            # It may have landed all the same.
            self.acknowledged.pop(slot, None)
            refused += 1
            self.at = (self.at + 1) % len(self.nodes)
        self.acknowledged[slot] = pattern
        return refused

    def smb(self, command):
        """A command of smbclient at the owner, again until it can be done."""
        for _ in range(100):
            owner, _pool = self.owner(self.at)
            if owner is None:
                time.sleep(0.1)
                continue
            host, port = self.nodes[owner]["smb_address"].rsplit(":", 1)
            done = subprocess.run(["smbclient", "-p", port, "-U", self.login, "-t", "10", "//%s/%s" % (host, self.share), "-c", command],
                                  capture_output=True, text=True)
            if done.returncode == 0:
                return
            time.sleep(0.1)
        raise SystemExit("the share does not answer: " + command)

    def put(self):
        name = "file%d" % len(self.files)
        content = random.randbytes(256 << 10)
        with open(self.work + "." + name, "wb") as file:
            file.write(content)
        self.smb("put %s %s" % (self.work + "." + name, name))
        os.unlink(self.work + "." + name)
        self.files.append((name, hash(content)))

    def wrong_files(self, files):
        wrong = 0
        for name, content in files:
            back = self.work + ".back"
            self.smb("get %s %s" % (name, back))
            with open(back, "rb") as file:
                wrong += hash(file.read()) != content
        return wrong

    def verify(self):
        wrong = 0
        places = sorted(self.acknowledged.items())
        for start in range(0, len(places), 32):
            reads = ["read -P %d %d 64k" % (pattern, slot << 16) for slot, pattern in places[start:start + 32]]
            url = "iscsi://%s/%s/0" % (self.nodes[self.at]["iscsi_address"], self.target)
            words = ["qemu-io", "-f", "raw"]
            for read in reads:
                words += ["-c", read]
            done = subprocess.run(words + [url], capture_output=True, text=True)
            wrong += done.stdout.count("Pattern verification failed") + (done.returncode != 0)
        return wrong

    def processes(self, node):
        supervisor = self.supervisors[node]
        with open("/proc/%d/task/%d/children" % (supervisor, supervisor)) as children:
            return [supervisor] + [int(pid) for pid in children.read().split()]

    def wait_for_all(self):
        """All nodes take part, and the pool is served."""
        for _ in range(600):
            told = self.status((self.at + 1) % 3)
            if told and sum(node["state"] == "up" for node in told["nodes"]) == 3 and self.owner((self.at + 1) % 3)[0] is not None:
                return
            time.sleep(0.1)
        raise SystemExit("the cluster is not whole again")

    def bring_back(self, node):
        dir = self.nodes[node]["data_dir"]
        log = open(dir + ".log", "a")
        again = subprocess.Popen([self.binary, "serve", "--supervise", "--until-input-ends", "--shards", "1", "--data-dir", dir],
                                 stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.started[node], self.supervisors[node] = again, again.pid

    def orders(self, pool, since):
        """Times of the last orders of the pool in any node's log."""
        found = {}
        for node in self.nodes:
            with open(node["data_dir"] + ".log", errors="replace") as log:
                start = max(0, os.path.getsize(node["data_dir"] + ".log") - 65536)
                log.seek(start)
                if start:
                    log.readline()  # Its beginning is not there.
                for line in log:
                    match = ORDER.match(line)
                    if match and match[2] == pool and match[4] in ("Fence", "Publish"):
                        at = datetime.datetime.fromisoformat(match[1]).timestamp()
                        if at > since:
                            found.setdefault(int(match[3]), {})[match[4]] = at
        whole = [epoch for epoch, orders in found.items() if len(orders) == 2]
        return found[max(whole)] if whole else {}


def fault(cluster, kind):
    cluster.wait_for_all()
    for _ in range(3):
        cluster.write()
    owner, pool = cluster.owner((cluster.at + 1) % 3)
    cluster.at = owner
    cluster.put()
    cluster.write()
    processes = cluster.processes(owner)
    if kind == "killed":
        # Its age, from the boot: field 22 of its stat, in ticks.
        with open("/proc/%d/stat" % processes[1]) as stat, open("/proc/uptime") as uptime:
            age = float(uptime.read().split()[0]) - int(stat.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
        time.sleep(max(0.0, HAS_RUN - age))
        cluster.write()
    began = time.time()
    if kind == "killed":
        os.kill(processes[1], signal.SIGKILL)
    elif kind == "gone":
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
    elif kind == "frozen":
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        cluster.frozen = processes
    else:
        to = cluster.nodes[(owner + 1) % 3]["name"]
        subprocess.run([cluster.binary, "--node", cluster.nodes[owner]["data_dir"], "pool", "move", "p1", to],
                       capture_output=True)
    refused = cluster.write()
    ended = time.time()
    time.sleep(0.3)
    orders = cluster.orders(pool, began)
    if kind == "frozen":
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        cluster.frozen = []
    if kind == "gone":
        cluster.bring_back(owner)
    wrong = cluster.verify() + cluster.wrong_files(cluster.files[-1:])
    fence, publish = orders.get("Fence", ended), orders.get("Publish", ended)
    return {"kind": kind, "gap": ended - began, "detect": fence - began, "take over": publish - fence,
            "reconnect": ended - publish, "refused": refused, "wrong": wrong}


def at(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def chart(rows):
    colours = {"detect": "#718096", "take over": "#2b6cb0", "reconnect": "#68d391"}
    scale = 460 / max(sum(parts.values()) for _, parts in rows)
    svg = ['<svg xmlns="http://www.w3.org/2000/svg" width="860" height="%d" font-family="sans-serif" font-size="12">' % (60 + 28 * len(rows)),
           '<rect width="100%" height="100%" fill="#fff"/>',
           '<text x="8" y="18">Seconds from the fault to the first acknowledged write, medians</text>']
    for i, (part, colour) in enumerate(colours.items()):
        svg.append('<rect x="%d" y="28" width="12" height="12" fill="%s"/><text x="%d" y="38">%s</text>' % (8 + 100 * i, colour, 24 + 100 * i, part))
    for i, (name, parts) in enumerate(rows):
        y, x = 54 + 28 * i, 320.0
        svg.append('<text x="8" y="%d">%s</text>' % (y + 13, name))
        for part, colour in colours.items():
            width = max(0.0, parts[part]) * scale
            svg.append('<rect x="%.1f" y="%d" width="%.1f" height="18" fill="%s"/>' % (x, y, width, colour))
            x += width
        svg.append('<text x="%.1f" y="%d">%.2f</text>' % (x + 6, y + 13, sum(parts.values())))
    return "\n".join(svg + ["</svg>"]) + "\n"


def report(found, wrong, blocks, files, directory):
    lines = ["# Takeovers", "",
             "`bench/failover.py` (its first lines say how): three nodes with etcd on one machine of two processors, pools on disks that all reach over iSCSI, "
             "fenced by persistent reservations. Seconds from the fault to the first acknowledged write of a client that logs in anew for each write and asks "
             "the nodes in turn (an attempt takes 0.05 to 0.1 s; a node that says nothing for 1 s is given up).", "",
             "| fault | times | median | p90 | p99 | worst | detect | take over | reconnect | goal (p99) |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    rows = []
    for kind, name in KINDS.items():
        these = [one for one in found if one["kind"] == kind]
        if not these:
            continue
        gaps = [one["gap"] for one in these]
        parts = {part: at([one[part] for one in these], 0.5) for part in ("detect", "take over", "reconnect")}
        rows.append((name, parts))
        lines.append("| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f |" % (
            name, len(these), at(gaps, 0.5), at(gaps, 0.9), at(gaps, 0.99), max(gaps), parts["detect"], parts["take over"], parts["reconnect"], GOALS[kind]))
    lines += ["", "%d takeovers; %d acknowledged blocks of the LUN and %d files of the share, read back after each takeover (the last file) and at the end "
              "(all): %d wrong." % (len(found), blocks, files, wrong), "",
              "![The three parts](failover.svg)", ""]
    with open(os.path.join(directory, "failover.md"), "w") as page:
        page.write("\n".join(lines))
    with open(os.path.join(directory, "failover.svg"), "w") as picture:
        picture.write(chart(rows))


def main():
    binary, work, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    kinds = sys.argv[5:] or list(KINDS)
    cluster = Cluster(binary, work)
    found = []
    interrupted = []
    signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
    try:
        for number in range(count):
            if interrupted:
                break
            one = fault(cluster, kinds[number % len(kinds)])
            found.append(one)
            print("%d of %d: %s" % (number + 1, count, ", ".join("%s %s" % (k, v if isinstance(v, (str, int)) else "%.2f" % v) for k, v in one.items())), flush=True)
        cluster.wait_for_all()
        cluster.write()
        wrong = sum(one["wrong"] for one in found) + cluster.verify() + cluster.wrong_files(cluster.files)
        print("%d acknowledged blocks, %d files, %d wrong" % (cluster.next, len(cluster.files), wrong))
        if len(sys.argv) > 4:
            report(found, wrong, cluster.next, len(cluster.files), sys.argv[4])
        return 1 if wrong else 0
    finally:
        for pid in cluster.frozen:
            os.kill(pid, signal.SIGCONT)
        for again in cluster.started.values():
            again.terminate()
        cluster.demo.terminate()
        cluster.demo.wait()


if __name__ == "__main__":
    sys.exit(main())
