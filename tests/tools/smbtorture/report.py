#!/usr/bin/env python3
"""What smbtorture says of each kind of share, as a page: sums by suite, and each test that does not pass with its reason.

    report.py TABLE.csv PAGE.md
"""

import csv
import fnmatch
import subprocess
import sys
import time
from pathlib import Path

HEAD = """# Samba's smbtorture

{date}: smbtorture {version} against a node with a volume (`make smbtorture`: a mirrored volume on file disks, optimised build), every
suite of SMB 2 on three kinds of shares: **plain**, **clustered** (continuously available) and **scale-out** (continuously
available, clients cache reads only). Suites about what users may do run as a plain user, the others as an administrator;
tests that cut the network below a connection do it with iptables; what fails is tried once more by itself. The table by test is
[smbtorture.csv](smbtorture.csv), the reasons are kept in `tests/tools/smbtorture/reasons.tsv`.

Continuously available shares answer some tests otherwise because MS-SMB2 wants them to:

* **scale-out**: for a client of SMB 3, BATCH becomes LEVEL_II (3.3.5.9), and a lease keeps READ only (3.3.5.9.8, 3.3.5.9.11).
  Nobody caches a handle then, so DHnQ and DH2Q without the persistent flag are not granted (3.3.5.9.6, 3.3.5.9.10), and a test
  that asks for a batch oplock, a lease of more than reads, or a durable handle and insists on it cannot pass.
* **clustered** and **scale-out**: DH2Q with the persistent flag is granted whatever the client caches (3.3.5.9.10).

| suite | {heads} |
|---|{lines}|
"""
WHY = """
## What does not pass, and why

A result that is not said is that of all three; "skipped" is what the test itself says.

| test | on | why |
|---|---|---|
"""


def reasons():
    """The rows of reasons.tsv: pattern, kinds, reason."""
    with open(Path(__file__).with_name("reasons.tsv"), encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines if line.strip() and not line.startswith("#")]
    return [(pattern, kinds, reason) for pattern, kinds, reason in rows]


def write(table, page):
    """Writes the page; 1 if a test that does not pass has no reason, or a reason has no such test."""
    with open(table, newline="", encoding="utf-8") as lines:
        header, *rows = list(csv.reader(lines))
    kinds = header[2:]
    known = reasons()
    sums, failed, wrong = {}, {}, []
    used = set()
    for suite, test, *results in rows:
        name = suite.removeprefix("smb2.") + ("" if test == suite.removeprefix("smb2.") else "." + test)
        for kind, result in zip(kinds, results):
            of = sums.setdefault(suite, {}).setdefault(kind, {"success": 0, "skip": 0, "all": 0})
            of["all"] += 1
            of[result if result in of else "failed"] = of.get(result if result in of else "failed", 0) + 1
            if result == "success":
                continue
            fits = [i for i, (pattern, on, _) in enumerate(known)
                    if fnmatch.fnmatchcase(name, pattern) and (on == "all" or kind in on.split(","))]
            if not fits:
                wrong.append(f"{name} on {kind}: {result}, and nobody says why")
                continue
            used.add(fits[0])
            failed.setdefault(fits[0], {}).setdefault(name, {})[kind] = result
    run = {suite.removeprefix("smb2.") for suite in sums}
    wrong += [f"{known[i][0]} ({known[i][1]}) passes, or is no test" for i in range(len(known))
              if i not in used and known[i][0].split(".")[0].rstrip("*") in run]
    version = subprocess.run(["smbtorture", "--version"], capture_output=True, text=True, check=False).stdout.split()
    with open(page, "w", encoding="utf-8") as out:
        out.write(HEAD.format(date=time.strftime("%Y-%m-%d", time.gmtime()), version=(version or ["?"])[-1],
                              heads=" | ".join(kinds), lines="|".join("--:" for _ in kinds)))
        totals = {kind: {"success": 0, "all": 0, "skip": 0} for kind in kinds}
        for suite, of in sums.items():
            cells = []
            for kind in kinds:
                for key in totals[kind]:
                    totals[kind][key] += of[kind][key]
                cells.append(cell(of[kind]))
            out.write(f"| {suite} | {' | '.join(cells)} |\n")
        out.write(f"| **all** | {' | '.join(cell(totals[kind]) for kind in kinds)} |\n")
        out.write("\nPassed of all, without what the tests themselves skip.\n")
        out.write(WHY)
        for i in sorted(failed):
            names = ", ".join(shortened(failed[i]))
            out.write(f"| {names} | {on(failed[i], kinds)} | {known[i][2]} |\n")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def cell(of):
    return f"{of['success']}/{of['all'] - of['skip']}"


def shortened(names):
    """Names of one suite after each other without repeating it."""
    before, told = None, []
    for name in names:
        suite, _, test = name.partition(".")
        told.append(test if test and suite == before else name)
        before = suite
    return told


def on(results, kinds):
    """On which kinds, and what came of it."""
    where = sorted({kind for found in results.values() for kind in found}, key=kinds.index)
    what = sorted({result for found in results.values() for result in found.values()})
    words = {"failure": "fails", "error": "fails", "skip": "skipped", "timeout": "times out", "not run": "not run"}
    told = " or ".join(dict.fromkeys(words.get(result, result) for result in what))
    return told if len(where) == len(kinds) else f"{', '.join(where)}: {told}"


if __name__ == "__main__":
    sys.exit(write(Path(sys.argv[1]), Path(sys.argv[2])))
