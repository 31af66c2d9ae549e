#!/usr/bin/env python3
"""Fuzzes every parser: run.py SECONDS [--jobs N] [--idle] [--report FOLDER] [TARGET ...]

SECONDS are of processor time for each target, so that a run beside other work does as much as one alone. With --report the
ledger in FOLDER/fuzz.json is read first and counts: whoever fuzzes an hour today and an hour tomorrow goes on where the last
run stopped, and FOLDER/fuzz.md is written from it.

Needs a nightly toolchain and a C++ compiler; cargo-fuzz is not needed. What libFuzzer learns stays in target/fuzz-corpus; a
crash is left in fuzz/artifacts/TARGET and ends that target's run. A new seed worth keeping goes to fuzz/corpus/TARGET, where each
`cargo test` replays it.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

FUZZ = pathlib.Path(__file__).resolve().parent
ROOT = FUZZ.parent
LEARNT = ROOT / "target" / "fuzz-corpus"
# How long libFuzzer runs at a time, in seconds: between two of them the ledger is written.
SLICE = 60
# What libFuzzer ends with when it is interrupted: no finding.
INTERRUPTED = 72
# An input that takes longer is a finding. Beside other work the clock says little, hence the second figure for --idle.
SLOW_INPUT, SLOW_INPUT_IDLE = 10, 120

INSTRUMENTED = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table "
    "-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1"
)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float, help="processor time for each target")
    parser.add_argument("--jobs", type=int, default=1, help="how many targets run at a time")
    parser.add_argument("--idle", action="store_true", help="take only the processor time that nobody else wants")
    parser.add_argument("--report", type=pathlib.Path, help="folder of the ledger fuzz.json and of fuzz.md")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    return parser.parse_intermixed_args()


def build():
    """The path of the one binary that drives every target."""
    version = subprocess.run(["rustc", "+nightly", "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search(r"^host: (.*)$", version, re.M).group(1)
    environment = dict(os.environ, RUSTFLAGS=INSTRUMENTED, RUSTUP_TOOLCHAIN="nightly")
    target = pathlib.Path(environment.setdefault("CARGO_TARGET_DIR", str(FUZZ / "target")))
    subprocess.run(["cargo", "build", "--release", "--target", host], check=True, cwd=FUZZ, env=environment)
    return target / host / "release" / "fuzz"


def one_slice(binary, target, seconds, idle):
    """Runs libFuzzer once; its processor time in seconds, the inputs it ran, the edges it covered, and what it found."""
    artifacts = FUZZ / "artifacts" / target
    learnt = LEARNT / target
    artifacts.mkdir(parents=True, exist_ok=True)
    learnt.mkdir(parents=True, exist_ok=True)
    command = [
        *(["chrt", "-i", "0"] if idle else []), str(binary), f"-max_total_time={max(1, round(seconds))}",
        f"-timeout={SLOW_INPUT_IDLE if idle else SLOW_INPUT}", "-rss_limit_mb=1024", "-max_len=70000",
        # What a thread holds that ends while it is looked for leaks is told of as one, at the end of the process, too; memory that
        # grows meets the limit above.
        "-detect_leaks=0",
        "-print_final_stats=1", f"-artifact_prefix={artifacts}/", str(learnt), str(FUZZ / "corpus" / target),
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env=dict(os.environ, FUZZ_TARGET=target, ASAN_OPTIONS="detect_leaks=0"),
    ) as process:  # fmt: skip
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    number = lambda pattern: int((re.findall(pattern, output) or ["0"])[-1])
    found = "" if process.returncode in (0, INTERRUPTED) else "\n".join(output.splitlines()[-40:])
    return (
        usage.ru_utime + usage.ru_stime,
        number(r"stat::number_of_executed_units:\s*(\d+)"),
        number(r"cov: (\d+)"),
        found,
    )


class Ledger:
    """What each target has had: processor time, inputs, edges, and when and of which commit it was last."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()
        self.rows = {}
        if folder and (folder / "fuzz.json").exists():
            self.rows = json.loads((folder / "fuzz.json").read_text())
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        self.commit = described.stdout.strip() or "unknown"

    def seconds(self, target):
        return self.rows.get(target, {}).get("seconds", 0.0)

    def add(self, target, seconds, inputs, edges):
        with self.lock:
            row = self.rows.setdefault(target, {"seconds": 0.0, "inputs": 0, "since": self.commit})
            row["seconds"] = round(row["seconds"] + seconds, 1)
            row["inputs"] += inputs
            row["edges"] = edges
            row["commit"] = self.commit
            row["date"] = datetime.date.today().isoformat()
            if self.folder:
                self.write()

    def write(self):
        (self.folder / "fuzz.json").write_text(json.dumps(self.rows, indent=1, sort_keys=True) + "\n")
        targets = sorted(entry.name for entry in (FUZZ / "corpus").iterdir())
        lines = [
            "# Fuzzing", "",
            "Every parser of bytes from a disk or a network, with the address sanitizer and debug assertions",
            "(`make fuzz FUZZ_SECONDS=600`). Seconds are of processor time, added up over runs; the goal is 600 for each target.",
            "What was found is in the log of the run, and mended with its input in fuzz/corpus before that target goes on.", "",
            f"{sum(self.seconds(target) >= 600 for target in targets)} of {len(targets)} targets have had their 600 s, "
            f"{sum(map(self.seconds, targets)) / 3600:.1f} hours and "
            f"{sum(self.rows.get(target, {}).get('inputs', 0) for target in targets):,} inputs in all.", "",
            "| target | seconds | inputs run | edges | last run | commits |", "|---|--:|--:|--:|---|---|",
        ]  # fmt: skip
        for target in targets:
            row = self.rows.get(target)
            if row is None:
                lines.append(f"| {target} | 0 | not run | | | |")
                continue
            commits = row["commit"] if row["since"] == row["commit"] else f"{row['since']} … {row['commit']}"
            lines.append(
                f"| {target} | {row['seconds']:.0f} | {row['inputs']:,} | {row['edges']:,} | {row['date']} | {commits} |"
            )
        (self.folder / "fuzz.md").write_text("\n".join(lines) + "\n")


def main():
    given = arguments()
    targets = given.targets or sorted(entry.name for entry in (FUZZ / "corpus").iterdir())
    ledger = Ledger(given.report)
    binary = build()
    failed = []
    stopped = threading.Event()

    def fuzz(target):
        while not stopped.is_set() and (left := given.seconds - ledger.seconds(target)) > 0.5:
            seconds, inputs, edges, found = one_slice(binary, target, min(SLICE, left), given.idle)
            if found:
                failed.append(target)
                print(f"{target}: see fuzz/artifacts/{target}\n{found}", flush=True)
                return
            ledger.add(target, seconds, inputs, edges)
            print(f"{target}: {ledger.seconds(target):.0f} of {given.seconds:.0f} s, {inputs:,} inputs, {edges:,} edges", flush=True)

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        # Who has had least goes first: a run that is stopped leaves all of them with a part.
        running = [pool.submit(fuzz, target) for target in sorted(targets, key=ledger.seconds)]
        try:
            for future in running:
                future.result()
        except KeyboardInterrupt:
            # What is under way ends with its slice, and counts.
            stopped.set()
    if failed:
        print(f"{len(failed)} of {len(targets)} targets found something: {', '.join(sorted(failed))}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
