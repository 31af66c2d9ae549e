"""How long and where is measured, and on what machine."""
import os
import platform
import re
import subprocess
import time

SECONDS = float(os.environ.get("BENCH_SECONDS", "8"))
REPS = int(os.environ.get("BENCH_REPS", "5"))
DISK = os.path.abspath(os.environ.get("BENCH_DIR", "target/bench/data"))
MEMORY = "/dev/shm/holdfast-bench-%d" % os.getpid()
# Small enough to be filled before each run, large enough that the disk's own cache does not hold it.
MIB = int(os.environ.get("BENCH_MIB", "2048"))


def describe():
    """What a table of results says of where it comes from."""
    git = lambda *words: subprocess.run(["git", *words], capture_output=True, text=True).stdout.strip()
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"model name\s*: (.*)", f.read())
    return {"cpu": cpu.group(1) if cpu else "", "cores": os.cpu_count(), "kernel": platform.release(),
            "date": time.strftime("%Y-%m-%d"), "commit": git("rev-parse", "--short", "HEAD"), "seconds": SECONDS,
            "reps": REPS}
