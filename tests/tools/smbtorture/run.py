#!/usr/bin/env python3
"""smbtorture against the three kinds of shares of a node with a volume: what passes, what does not, and why.

    run.py --holdfast PROGRAM --work FOLDER [--suites "smb2.lease ..."] [--report FOLDER]

Starts a node, makes a share of each kind, and runs every suite of SMB 2 on each; the kinds at the same time, each on a node
of its own. What fails is tried once more by itself, as tests that look at the clock fail on a busy machine. Writes smbtorture.csv and smbtorture.md into the folder of the report. reasons.tsv says why a test does not pass;
one without a reason there, or that passes although it has one, ends the run with 1. Cutting the network below connections
takes root and iptables.
"""

import argparse
import contextlib
import csv
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import report
from suite import SINGLE_LIMIT, Suite, listed

KINDS = ["plain", "clustered", "scale-out"]
PASSWORD = "Torture-of-shares-1"
# Suites at the same time on one node, each on a share of its own: most of them wait most of the time.
JOBS = 2
# Never end: they hold something for another client.
ENDLESS = {"smb2.bench", "smb2.hold-oplock", "smb2.hold-sharemode"}
# About what users may do who are no administrators.
OF_USERS = {
    "smb2.acls", "smb2.acls_non_canonical", "smb2.charset", "smb2.check-sharemode", "smb2.compound", "smb2.compound_async",
    "smb2.compound_find", "smb2.create", "smb2.create_no_streams", "smb2.delete-on-close-perms", "smb2.deny", "smb2.dir",
    "smb2.dosmode", "smb2.ea", "smb2.fileid", "smb2.getinfo", "smb2.ioctl", "smb2.ioctl-on-stream", "smb2.mangle",
    "smb2.maxfid", "smb2.maximum_allowed", "smb2.mkdir", "smb2.openattr", "smb2.read", "smb2.rename", "smb2.rw",
    "smb2.samba3misc", "smb2.scan", "smb2.sdread", "smb2.secleak", "smb2.set-sparse-ioctl", "smb2.setinfo",
    "smb2.sharemode", "smb2.streams", "smb2.tcon", "smb2.timestamp_resolution", "smb2.timestamps", "smb2.twrp",
    "smb2.winattr", "smb2.zero-data-ioctl",
}
# Tests of those that need the restore privilege: they make Everyone the owner of a file (MS-FSA 2.1.5.17).
OF_ADMINISTRATORS = {"smb2.create": ["aclfile", "acldir"], "smb2.acls": ["SDFLAGSVSCHOWN"]}
# Wants a server that asks for signatures: done once more by itself, with one.
SIGNED = {"smb2.session-require-signing"}
# Cut the network below their connections, with rules that those of another node on this machine would remove: one at a time.
CUTTING = {"smb2.multichannel", "smb2.oplock"}
ONE_AT_A_TIME = threading.Lock()
# Wait for what only a Samba that was set up for them does.
HOPELESS = {"smb2.aio_delay", "smb2.change_notify_disabled"}
OPTIONS = {
    "smb2.set-sparse-ioctl": ["--option=torture:filename=sparse"],
    "smb2.zero-data-ioctl": ["--option=torture:filename=zero", "--option=torture:offset=0",
                             "--option=torture:beyond_final_zero=131072"],
}


def sums(found):
    """How many tests came to what."""
    told = {}
    for result, _ in found.values():
        told[result] = told.get(result, 0) + 1
    return told


def alone(name):
    """Held while a suite runs: by one of those that cut connections at a time."""
    return ONE_AT_A_TIME if name in CUTTING else contextlib.nullcontext()


class Node:
    """A node with a volume, and one share."""

    def __init__(self, program, folder, kind):
        self.program, self.folder, self.kind = program, folder, kind
        folder.mkdir(parents=True, exist_ok=True)
        self.log = open(folder / "node.log", "wb")
        demo = [program, "--json", "demo", "--dir", folder / "data", "--iscsi", "127.0.0.1:0", "--smb", "127.0.0.1:0"]
        self.process = subprocess.Popen(demo, stdout=subprocess.PIPE, stderr=self.log)
        told = json.loads(self.process.stdout.readline())
        self.socket = told["api_socket"]
        self.port = int(told["smb_address"].rsplit(":", 1)[1])
        for user, group in [("boss", ["--group", "Administrators"]), ("user", []), ("second", [])]:
            self.do("user", "create", user, *group, "--password-stdin", said=PASSWORD + "\n")
        # Some tests ask for the one, some for the other; nothing is signed that the client does not sign.
        self.do("smb", "set", "--signing", "offered")
        for job in range(JOBS):
            self.share(f"torture{job}")
            self.do("file", "create", f"vm:/shares/torture{job}/zero", "--size", "1MiB")
        # acls.ACCESSBASED knows it by this name.
        self.share("hideunread", "--access-based-enumeration")

    def share(self, name, *options):
        self.do("share", "create", name, "--kind", self.kind, "--full", "Everyone", *options)

    def do(self, *words, said=None):
        command = [self.program, "--node", self.socket, "--yes", *words]
        done = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")

    def run(self, suites, results):
        waiting = queue.SimpleQueue()
        for suite in suites.items():
            waiting.put(suite)
        jobs = [threading.Thread(target=self.work, args=(job, waiting, results)) for job in range(JOBS)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        for name in suites:
            self.once_more(name, results[self.kind, name])

    def work(self, job, waiting, results):
        """One suite after the other, while there are any."""
        while True:
            try:
                name, tests = waiting.get_nowait()
            except queue.Empty:
                return
            with alone(name):
                begun = time.monotonic()
                found = self.suite(name, tests, job).run()
            results[self.kind, name] = found
            print(f"{self.kind:10} {name:30} {time.monotonic() - begun:6.0f} s  {sums(found)}", flush=True)

    def once_more(self, name, found):
        """What did not pass, by itself and as whom it takes."""
        for test, (result, _) in found.items():
            if result not in ("failure", "error", "timeout", "not run") or name in HOPELESS:
                continue
            self.do("smb", "set", "--signing", "required" if name in SIGNED else "offered")
            suite = self.suite(name, [test], 0, "boss" if test in OF_ADMINISTRATORS.get(name, []) else None)
            again = {}
            with alone(name):
                suite.once([f"{name}.{test}"], time.monotonic() + SINGLE_LIMIT, again, test)
            if again.get(test, ("",))[0] == "success":
                print(f"{self.kind:10} {name}.{test}: passed by itself", flush=True)
                found[test] = again[test]

    def suite(self, name, tests, job, user=None):
        user = user or ("user" if name in OF_USERS else "boss")
        second = ["--option=torture:user2name=second", f"--option=torture:user2password={PASSWORD}"]
        share = f"torture{job}"
        options = second + ["--option=torture:use_iptables=yes", f"--option=torture:share1={share}"]
        options += OPTIONS.get(name, [])
        log = self.folder / f"{name}.log"
        return Suite(name, tests, f"//127.0.0.1/{share}", f"{user}%{PASSWORD}", self.port, options, log)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--holdfast", required=True)
    arguments.add_argument("--work", required=True, type=Path)
    arguments.add_argument("--suites", default="")
    arguments.add_argument("--kinds", default=" ".join(KINDS))
    arguments.add_argument("--report", type=Path)
    given = arguments.parse_args()
    everything = {name: tests for name, tests in listed().items() if name not in ENDLESS}
    wanted = given.suites.split() or list(everything)
    suites = {name: everything[name] for name in wanted}
    nodes = [Node(given.holdfast, given.work / kind, kind) for kind in given.kinds.split()]
    results = {}
    runs = [threading.Thread(target=node.run, args=(suites, results)) for node in nodes]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    for node in nodes:
        node.stop()
    rows = [(name, test, *(results[node.kind, name][test] for node in nodes)) for name in suites for test in suites[name]]
    folder = given.report or given.work
    with open(folder / "smbtorture.csv", "w", newline="", encoding="utf-8") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(["suite", "test", *(node.kind for node in nodes)])
        table.writerows([suite, test, *(result for result, _ in found)] for suite, test, *found in rows)
    with open(given.work / "told.csv", "w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([suite, test, *(x for one in found for x in one)] for suite, test, *found in rows)
    sys.exit(report.write(folder / "smbtorture.csv", folder / "smbtorture.md"))


if __name__ == "__main__":
    os.umask(0o077)
    main()
