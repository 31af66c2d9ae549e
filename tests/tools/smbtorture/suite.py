"""One suite of smbtorture: its tests one after the other, with time-outs, and what came of each."""

import os
import re
import select
import signal
import subprocess
import time

# Seconds of silence after which one test is stopped, in its suite and by itself.
TEST_LIMIT = 75
SINGLE_LIMIT = 240
# Seconds for a suite, with what is tried again test by test after a hang or a crash.
SUITE_LIMIT = 420
# A suite that works for longer without a word: it makes 65,520 files, each durable when its CREATE is answered.
LONG = {"smb2.maxfid": 2400}


def listed():
    """The suites of SMB 2 with their tests, as smbtorture lists them."""
    def lines(option):
        done = subprocess.run(["smbtorture", option], capture_output=True, text=True, check=False)
        return [line.strip() for line in done.stdout.splitlines() if line.strip()]

    suites = [name for name in lines("--list-suites") if name.startswith("smb2.")]
    found = {name: [] for name in suites}
    for test in lines("--list"):
        of = max((name for name in suites if test.startswith(name + ".")), key=len, default=None)
        if of:
            found[of].append(plain(test[len(of) + 1:]))
    return found


def plain(name):
    """A test that is listed as group.name.name is called group.name."""
    twice = re.match(r"^(?:(.*)\.)?(.+)\.\2$", name)
    if not twice:
        return name
    return (twice.group(1) + "." if twice.group(1) else "") + twice.group(2)


class Suite:
    """A suite against one share."""

    def __init__(self, name, tests, target, login, port, options, log):
        self.name, self.tests, self.log = name, tests, log
        self.command = ["smbtorture", "--format=subunit", "-p", str(port), "-U", login, *options, target]

    def run(self):
        """What came of each test: {test: (result, reason)}."""
        end = time.monotonic() + LONG.get(self.name, SUITE_LIMIT)
        done = {}
        self.once([self.name], end, done)
        # What a hang or a crash kept it from.
        for test in self.tests:
            if test not in done and time.monotonic() < end:
                self.once([f"{self.name}.{test}"], end, done, test)
        return {test: done.get(test, ("not run", "the suite's time was over")) for test in self.tests}

    def known(self, name):
        """The listed name of a test that smbtorture tells of, which leaves out or adds its group."""
        name = plain(name.removeprefix(self.name + "."))
        alike = [test for test in self.tests if test.split(".")[-1] == name.split(".")[-1]]
        return alike[0] if name not in self.tests and len(alike) == 1 else name

    def once(self, names, end, done, only=None):
        """Runs smbtorture once and puts what it tells into `done`; `only` names a test that is run by itself."""
        silence = LONG.get(self.name, SINGLE_LIMIT if only else TEST_LIMIT)
        process = subprocess.Popen(self.command + names, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        running, told, rest, hung, heard = None, [], b"", False, time.monotonic()
        whole = []
        while True:
            left = min(end, heard + silence) - time.monotonic()
            if left <= 0:
                hung = True
                # Its own group: children that it made are in it.
                os.killpg(process.pid, signal.SIGKILL)
                break
            if not select.select([process.stdout], [], [], min(left, 1))[0]:
                continue
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                break
            whole.append(data)
            rest += data
            *lines, rest = rest.split(b"\n")
            for line in (line.decode("utf-8", "replace") for line in lines):
                begun = re.match(r"^test: (.*)$", line)
                ended = re.match(r"^(success|failure|error|skip): (.*?)( \[)?$", line)
                if begun:
                    running, heard = self.known(begun.group(1)), time.monotonic()
                elif ended:
                    told, heard = [self.known(ended.group(2)), ended.group(1), []], time.monotonic()
                    done[told[0]] = (ended.group(1), "")
                    running = None
                    if not ended.group(3):
                        told = []
                elif told and line == "]":
                    done[told[0]] = (told[1], " ".join(told[2])[:300])
                    told = []
                elif told:
                    told[2].append(line.strip())
        process.wait()
        process.stdout.close()
        with open(self.log, "ab") as log:
            log.write(b"".join(whole))
        running = running or only
        if running and running not in done:
            if hung:
                done[running] = ("timeout", "stopped while it ran")
            else:
                done[running] = ("error", f"smbtorture ended with {process.returncode} and no result")
