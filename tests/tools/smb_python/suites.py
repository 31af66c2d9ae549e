#!/usr/bin/env python3
"""Runs the test suites of Python's SMB clients against a server, and compares what fails with what is known to.

    suites.py --folder CACHE --work FOLDER --server ADDRESS --user NAME --password TEXT
              --name NETBIOS --share PLAIN --ca-share CA --phase signed|unsigned [--full]

PLAIN-encrypted and C$ have to be there, too. Prints a line for each suite; ends with 1 when a test failed that known.tsv
does not name.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Modules of pike that say something about the server. `credit` moves hundreds of megabytes through Python's own
# encryption code, `durable` and `copychunk` take their time: at full size only.
PIKE = (
    "acl changenotify compound echo encryption invalid_tree ioctl lease lock multichannel negotiate oplock query "
    "querydirectory queryondiskid readwrite reparse session set tree durable"
).split()
PIKE_FULL = ["copychunk"]
PIKE_UNSIGNED = ["invalid_session"]
PIKE_UNSIGNED_FULL = ["credit"]
PIKE_CA = ["persistent", "appinstanceid"]
SLOW = ("timer", "after_timeout")
# What needs a share that is available without being scaled out, which lets clients cache handles and writes, and would
# leave files behind where it is not; and one that wants to reconnect without a flag, but sends it.
NOT_HERE = ("open_while_disconnected", "resiliency", "buffer_too_small", "reconnect_same_clientguid", "reconnect_fails")
SMBPROTOCOL = "change_notify connection open session smbclient_os smbclient_path smbclient_shutil tree".split()


def known():
    """Tests that need not pass: suite, test, whose fault, why. A test's name may end with * ."""
    rows = {}
    for line in (HERE / "known.tsv").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            suite, test, _whose, _why = line.split("\t")
            rows.setdefault(suite, []).append(re.compile(re.escape(test).replace(r"\*", ".*") + r"(\[.*\])?$"))
    return rows


class Runner:
    def __init__(self, options):
        self.options = options
        self.known = known()
        self.bad = 0

    def suite(self, name, arguments, environment, cwd, deselect=()):
        """One run of pytest; which tests failed is read from its summary."""
        log = pathlib.Path(self.options.work) / f"{name}.log"
        words = [f"{self.options.folder}/venv/bin/python", "-W", "ignore", "-m", "pytest", "-q", "-rfE", "--tb=short",
                 "-p", "no:cacheprovider", "-p", "no:warnings", "-o", "addopts="]
        if deselect:
            words += ["-k", " and ".join(f"not {word}" for word in deselect)]
        with open(log, "w", encoding="utf-8") as out:
            subprocess.run(words + arguments, stdout=out, stderr=subprocess.STDOUT, cwd=cwd, check=False,
                           env={**os.environ, **environment})
        text = log.read_text(encoding="utf-8", errors="replace")
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", text, re.M)
        # Module, class and test, without what the file is called.
        failed = [re.sub(r"^.*/", "", test).replace(".py", "") for test in failed]
        allowed = self.known.get(name, []) + self.known.get(name.split("-")[0], [])
        surprises = [test for test in failed if not any(each.search(test) for each in allowed)]
        passed = re.search(r"(\d+) passed", text)
        print(f"{name}: {passed[1] if passed else 0} passed, {len(failed)} failed, "
              f"{len(surprises)} of them not as known", flush=True)
        if surprises or not passed:
            self.bad += 1
            print("\n".join(surprises) or text[-2000:], flush=True)
            print(text[-6000:], flush=True)

    def pike(self, name, modules, share, environment, deselect=(), plugins=[]):
        o = self.options
        base = {"PIKE_SERVER": o.server, "PIKE_PORT": "445", "PIKE_SHARE": share, "PIKE_CREDS": f"{o.user}%{o.password}"}
        arguments = plugins + ["--pyargs"] + [f"pike.test.{module}" for module in modules]
        self.suite(name, arguments, {**base, **environment}, o.work, deselect)

    def run(self, phase):
        o = self.options
        slow = () if o.full else SLOW
        if phase == "unsigned":
            modules = PIKE_UNSIGNED + (PIKE_UNSIGNED_FULL if o.full else [])
            self.pike("pike-unsigned", modules, o.share, {})
            return
        more = PIKE_FULL if o.full else []
        self.pike("pike-signed", PIKE + more, o.share, {"PIKE_SIGN": "yes"}, slow)
        self.pike("pike-encrypted", PIKE if o.full else ["durable", "lease", "readwrite", "query", "multichannel"],
                  o.share, {"PIKE_ENCRYPT": "yes"}, slow)
        for dialect in ["2_1", "3_0"]:
            self.pike(f"pike-smb{dialect}", ["durable", "lease", "lock", "query", "tree"], o.share,
                      {"PIKE_MAX_DIALECT": f"DIALECT_SMB{dialect}"}, SLOW)
        # What a continuously available share grants is to cache reading: that is what is asked for here.
        self.pike("pike-ca", PIKE_CA, o.ca_share, {"PYTHONPATH": str(HERE)}, NOT_HERE, ["-p", "read_leases"])
        tests = [f"tests/test_{module}.py" for module in SMBPROTOCOL]
        self.suite("smbprotocol", tests, {
            "SMB_SERVER": o.server, "SMB_PORT": "445", "SMB_USER": o.user, "SMB_PASSWORD": o.password,
            # Also what its authors leave out because Samba has no symbolic links.
            "SMB_SHARE": o.share, "SMB_FORCE": "1"}, f"{o.folder}/smbprotocol")
        told = ("import sys; from impacket.ntlm import compute_lmhash as l, compute_nthash as n; p = sys.argv[1]; "
                "print(l(p).hex() + ':' + n(p).hex())")
        hashes = subprocess.run([f"{o.folder}/venv/bin/python", "-W", "ignore", "-c", told, o.password],
                                capture_output=True, text=True, check=True).stdout.strip()
        config = pathlib.Path(o.work) / "impacket.cfg"
        config.write_text(f"[TCPTransport]\nservername = {o.name}\nmachine = {o.server}\nusername = {o.user}\n"
                          f"password = {o.password}\nhashes = {hashes}\naesKey256 =\naesKey128 =\ndomain = \n"
                          "machineuser =\nmachineuserhashes =\n")
        # A test uploads a file of the package, which it looks for from where it is run.
        home = next(pathlib.Path(o.folder).glob("venv/lib/python*/site-packages"))
        self.suite("impacket", [f"{o.folder}/impacket/tests/SMB_RPC/test_smb.py", "-k", "(SMB002Tests or SMB21Tests or SMB3Tests) and not erberos",
                                f"--remote-config={config}"], {}, home)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("folder", "work", "server", "user", "password", "share", "ca-share", "name", "phase"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    # The tests are a package's; what their fixtures are comes from here.
    conftest = pathlib.Path(options.folder) / "smbprotocol/tests/conftest.py"
    conftest.write_text((HERE / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    runner = Runner(options)
    runner.run(options.phase)
    sys.exit(1 if runner.bad else 0)


if __name__ == "__main__":
    main()
