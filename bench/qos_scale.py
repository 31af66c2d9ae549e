"""Storage QoS where there is more of it: an aggregated policy over two nodes, and 10,000 flows. Parts of qos.py.

The two nodes are of the demo's cluster, each with a pool of its own. The flows are files of a share that Python's smbprotocol (a client that is
not ours) has open and writes to in turn; see tests/tools/smb_python/prepare.sh.
"""
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

from cluster import Bench
from machine import MEMORY, SECONDS
from servers import SMB_PASSWORD, SMB_USER, HoldfastShares

TARGET = 4000
FLOWS = int(os.environ.get("BENCH_FLOWS", "10000"))
FLOWS_SECONDS = int(os.environ.get("BENCH_FLOWS_SECONDS", "600"))
WRITERS = 2
PORT = 13271


class TwoNodes(Bench):
    """Two nodes with a pool and four LUNs each."""

    def __init__(self, work):
        super().__init__(work)
        self.names = []
        for node in range(2):
            pool = "q%d" % (node + 1)
            path = os.path.join(self.disks, pool)
            with open(path, "wb") as file:
                file.truncate(4096 << 20)
            self.cli(node, "pool", "create", pool, "%s:%s" % (self.nodes[node]["name"], path))
            self.cli(node, "volume", "create", pool, "--pool", pool, "--resiliency", "simple", "--size", "1GiB")
            for each in range(4):
                name, number = "%s-%d" % (pool, each), 10 * (node + 1) + each
                self.cli(node, "lun", "create", name, "--volume", pool, "--size", "16MiB", "--group", "everyone",
                         "--target", self.target, "--number", str(number))
                self.names.append(name)

    def urls(self, node):
        return ["iscsi://%s/%s/%d" % (self.nodes[node]["iscsi_address"], self.target, 10 * (node + 1) + each) for each in range(4)]


def nodes(load, rows):
    """`load(urls, seconds, interval)` starts a load at depth 16 on targets."""
    cluster = TwoNodes(MEMORY + "-nodes")
    try:
        for node in range(2):
            load(cluster.urls(node), 3, 1000, write=100).done()
        cluster.cli(0, "qos", "policy", "create", "both", "--type", "aggregated", "--max-iops", str(TARGET))
        for name in cluster.names:
            cluster.cli(0, "qos", "assign", "both", "--lun", name)
        time.sleep(2)
        stay = load(cluster.urls(0), SECONDS + 6, 250)
        leave = load(cluster.urls(1), SECONDS // 2 + 1, 250)
        _, _, some = leave.done()
        ended = time.monotonic() - stay.began
        _, _, each = stay.done()
    finally:
        cluster.stop()
        subprocess.run(["rm", "-rf", MEMORY + "-nodes"], check=False)
    # Without the first second, in which the division is found, and the last half second of those that leave.
    both = sum(each[4:len(some) - 2]) / (0.25 * (len(some) - 6)) + sum(some[4:-2]) / (0.25 * (len(some) - 6))
    off = 100 * (both - TARGET) / TARGET
    print("two nodes", some, each, file=sys.stderr)
    rows.append(["aggregated maximum of 4,000 over 8 LUNs of two nodes: the sum", "%.0f (%+.2f %%)" % (both, off), "±3 %", abs(off) <= 3])
    at = int((ended - 1) / 0.25)
    first = next((n for n, value in enumerate(each[at - 2:]) if value * 4 >= 0.95 * TARGET), None)
    rows.append(["– those of one node stop: the others have their share after, at most",
                 "–" if first is None else "%d ms" % max(0, (first - 1) * 250), "1 s", first is not None and (first - 1) * 250 <= 1000])


WRITER = r"""
import sys, time, uuid
from smbprotocol.connection import Connection
from smbprotocol.open import (CreateDisposition, CreateOptions, FileAttributes, FilePipePrinterAccessMask, ImpersonationLevel, Open, ShareAccess)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect
port, user, password, share, first, count, seconds = sys.argv[1:]
connection = Connection(uuid.uuid4(), "127.0.0.1", int(port))
connection.connect()
session = Session(connection, user, password, require_encryption=False)
session.connect()
tree = TreeConnect(session, r"\\127.0.0.1\%s" % share)
tree.connect(require_secure_negotiate=False)
files = []
for number in range(int(first), int(first) + int(count)):
    file = Open(tree, "disk%05d" % number)
    file.create(ImpersonationLevel.Impersonation, FilePipePrinterAccessMask.GENERIC_READ | FilePipePrinterAccessMask.GENERIC_WRITE,
                FileAttributes.FILE_ATTRIBUTE_NORMAL, ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE,
                CreateDisposition.FILE_OPEN_IF, CreateOptions.FILE_NON_DIRECTORY_FILE)
    files.append(file)
print("open", flush=True)
until, done, at = time.monotonic() + float(seconds), 0, 0
while time.monotonic() < until:
    sent = []
    for _ in range(32):
        file = files[at % len(files)]
        at += 1
        message, answer = file.write(bytes([at % 251]) * 4096, 0, send=False)
        sent.append((connection.send(message, session.session_id, tree.tree_connect_id), answer))
    for request, answer in sent:
        answer(request)
        done += 1
print(done, flush=True)
"""


def ask(path, what):
    """Milliseconds of one request to the node's own API, and its list."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request("GET", what)
    answer = connection.getresponse()
    body = answer.read()
    took = 1000 * (time.monotonic() - began)
    if answer.status != 200:
        raise RuntimeError("%s: %d" % (what, answer.status))
    return took, json.loads(body)["items"]


def resident(pid):
    with open("/proc/%d/status" % pid) as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


def flows(python, rows):
    node = HoldfastShares(MEMORY + "-flows", PORT, 1024)
    try:
        node.cli("qos", "policy", "create", "each", "--type", "dedicated", "--min-iops", "1", "--max-iops", "50")
        node.cli("qos", "assign", "each", "--share", "bench")
        part = FLOWS // WRITERS
        writers = [subprocess.Popen([python, "-c", WRITER, str(PORT), SMB_USER, SMB_PASSWORD, "bench", str(part * each), str(part), str(FLOWS_SECONDS)],
                                    stdout=subprocess.PIPE, text=True) for each in range(WRITERS)]
        for writer in writers:
            if writer.stdout.readline().strip() != "open":
                raise RuntimeError("a writer has failed")
        api, began, seen = os.path.join(node.data, "holdfast.sock"), time.monotonic(), []
        ended = threading.Event()
        threading.Thread(target=lambda: ([writer.wait() for writer in writers], ended.set()), daemon=True).start()
        while not ended.wait(10):
            lists, each = ask(api, "/v1/qos/flows")
            rolled, _ = ask(api, "/v1/qos/volumes")
            seen.append((time.monotonic() - began, resident(node.pid()), lists, rolled, len(each)))
            print("%4.0f s: %.0f MiB, list of %d in %.0f ms, roll-up in %.0f ms" % (seen[-1][0], seen[-1][1], len(each), lists, rolled),
                  file=sys.stderr, flush=True)
        done = sum(int(writer.stdout.readline() or 0) for writer in writers)
        if any(writer.returncode for writer in writers):
            raise RuntimeError("a writer has failed")
    finally:
        node.stop()
    # When all have been written to once.
    settled = [row for row in seen if row[0] > seen[-1][0] / 6]
    low, high = min(row[1] for row in settled), max(row[1] for row in settled)
    middle = lambda values: sorted(values)[len(values) // 2]
    fewest = min(row[4] for row in settled)
    rows.append(["%s flows for %d s, %s writes: resident memory after the first sixth" % (format(FLOWS, ","), FLOWS_SECONDS, format(done, ",")),
                 "%.0f to %.0f MiB, %.0f at the end" % (low, high, settled[-1][1]), "flat: within 5 %", high <= 1.05 * low])
    for number, what in ((2, "list of %s flows" % format(fewest, ",")), (3, "roll-up of their volume")):
        times = [row[number] for row in settled]
        rows.append(["– %s over the API" % what, "%.0f ms, %.0f at most" % (middle(times), max(times)), "< 100 ms", max(times) < 100])
