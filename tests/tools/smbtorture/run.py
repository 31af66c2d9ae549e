#!/usr/bin/env python3
"""smbtorture against the three kinds of shares of a node with a volume: what passes, what does not, and why.

    run.py --holdfast PROGRAM --work FOLDER [--suites "smb2.lease ..."] [--report FOLDER]

Starts a node, makes a share of each kind, and runs every suite of SMB 2 on each; the kinds at the same time, each on a node
of its own. Writes smbtorture.csv and smbtorture.md into the folder of the report. reasons.tsv says why a test does not pass;
one without a reason there, or that passes although it has one, ends the run with 1. Cutting the network below connections
takes root and iptables.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import report
from suite import Suite, listed

KINDS = ["plain", "clustered", "scale-out"]
PASSWORD = "Torture-of-shares-1"
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
OPTIONS = {
    "smb2.set-sparse-ioctl": ["--option=torture:filename=sparse"],
    "smb2.zero-data-ioctl": ["--option=torture:filename=zero", "--option=torture:offset=0",
                             "--option=torture:beyond_final_zero=131072"],
}


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
        self.do("share", "create", "torture", "--kind", kind, "--full", "Everyone")
        self.do("share", "create", "hideunread", "--kind", kind, "--full", "Everyone", "--access-based-enumeration")

    def do(self, *words, said=None):
        command = [self.program, "--node", self.socket, "--yes", *words]
        done = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")

    def run(self, suites, results):
        for name, tests in suites.items():
            begun = time.monotonic()
            user = "user" if name in OF_USERS else "boss"
            found = self.suite(name, tests, user)
            again = [test for test in OF_ADMINISTRATORS.get(name, []) if found.get(test, ("",))[0] != "success"]
            for test in again:
                found[test] = self.suite(f"{name}.{test}", [test], "boss", name)[test]
            results[self.kind, name] = found
            sums = {}
            for result, _ in found.values():
                sums[result] = sums.get(result, 0) + 1
            print(f"{self.kind:10} {name:32} {time.monotonic() - begun:6.0f} s  {sums}", flush=True)

    def suite(self, name, tests, user, log=None):
        second = ["--option=torture:user2name=second", f"--option=torture:user2password={PASSWORD}"]
        options = second + ["--option=torture:use_iptables=yes", "--option=torture:share1=torture"]
        options += OPTIONS.get(name, [])
        if log:
            one = Suite(log, tests, "//127.0.0.1/torture", f"{user}%{PASSWORD}", self.port, options, self.folder / f"{log}.log")
            done = {}
            one.once([name], time.monotonic() + 60, done, tests[0])
            return done
        target = "//127.0.0.1/" + ("hideunread" if name.endswith("ACCESSBASED") else "torture")
        log = self.folder / f"{name}.log"
        return Suite(name, tests, target, f"{user}%{PASSWORD}", self.port, options, log).run()

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
