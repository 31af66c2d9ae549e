"""The servers that are compared: a holdfast node, Debian's tgtd and smbd, each started here and ended here."""
import json
import os
import shutil
import socket
import subprocess
import time

BINARY = os.path.abspath(os.environ.get("HOLDFAST_BIN") or os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release/holdfast"))
IQN = "iqn.2026-01.io.holdfast:bench"
SMB_USER, SMB_PASSWORD = "holdfastbench", "Bench-Secret-1"


def listens(port):
    """Whether somebody takes connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def wait_for(what, done, seconds=30):
    """Until done() is true."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise RuntimeError("not in time: " + what)
        time.sleep(0.05)


class Tgt:
    """One tgtd with one LUN. bstype rdwr or aio; flags "sync" (O_SYNC: write-through), "direct" (O_DIRECT), or both with
    a colon."""

    def __init__(self, folder, port, mib, bstype, flags="", name=None):
        self.name = name or "tgt-" + bstype
        self.folder, self.control = folder, str(port)
        os.makedirs(folder, exist_ok=True)
        self.image = os.path.join(folder, "tgt.img")
        with open(self.image, "wb") as f:
            f.truncate(mib << 20)
        self.log = open(os.path.join(folder, "tgtd.log"), "ab")
        self.process = subprocess.Popen(
            ["tgtd", "-f", "-C", self.control, "--iscsi", "portal=127.0.0.1:%d" % port],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            self.serve(port, bstype, flags)
        except RuntimeError:
            # Nobody else knows of it yet.
            self.process.kill()
            raise

    def serve(self, port, bstype, flags):
        wait_for("tgtd", lambda: self.admin("--op", "show", "--mode", "sys") == 0)
        self.need("--op", "new", "--mode", "target", "--tid", "1", "-T", IQN)
        lun = ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", self.image, "-E", bstype]
        self.need(*(lun + (["-f", flags] if flags else [])))
        self.need("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")
        self.url = "iscsi://127.0.0.1:%d/%s/1" % (port, IQN)

    def admin(self, *words):
        return subprocess.call(["tgtadm", "-C", self.control, "--lld", "iscsi", *words],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def need(self, *words):
        if self.admin(*words) != 0:
            raise RuntimeError("tgtadm " + " ".join(words))

    def pid(self):
        return self.process.pid

    def stop(self):
        self.process.kill()  # it does not listen to SIGTERM
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Node:
    """One node with a pool of file disks and a volume, both `bench`."""

    def __init__(self, folder, mib, resiliency="simple", disks=1, disk_mib=None):
        self.name = "holdfast" if resiliency == "simple" else "holdfast-" + resiliency
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.data = os.path.join(folder, "node")
        self.log = open(os.path.join(folder, "holdfast.log"), "ab")
        self.start()
        paths = []
        for i in range(disks):
            path = os.path.join(folder, "disk%d.img" % i)
            with open(path, "wb") as f:
                f.truncate((disk_mib or mib + 4096) << 20)
            paths.append(path)
        self.cli("pool", "create", "bench", *paths)
        self.cli("volume", "create", "bench", "--pool", "bench", "--resiliency", resiliency,
                 "--size", "%dMiB" % (mib + 2048))

    def start(self):
        self.process = subprocess.Popen([BINARY, "serve", "--data-dir", self.data], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        wait_for("holdfast", lambda: self.process.poll() is not None or self.try_status())
        if self.process.poll() is not None:
            raise RuntimeError("holdfast ended: see " + self.log.name)

    def try_status(self):
        done = subprocess.run([BINARY, "--node", self.data, "--json", "status"], capture_output=True, text=True)
        return done.returncode == 0 and json.loads(done.stdout).get("ready", False)

    def cli(self, *words, told=None):
        done = subprocess.run([BINARY, "--node", self.data, "--yes", *words], input=told, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError("holdfast %s: %s" % (" ".join(words), done.stderr.strip()))
        return done.stdout

    def pid(self):
        return self.process.pid

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Holdfast(Node):
    """A node with a LUN `bench`."""

    def __init__(self, folder, port, mib, resiliency="simple", disks=1, write_cache=False, disk_mib=None):
        super().__init__(folder, mib, resiliency, disks, disk_mib)
        self.cli("initiator-group", "create", "everyone", "--any")
        self.cli("target", "create", IQN)
        self.cli("portal", "create", "127.0.0.1:%d" % port)
        self.lun("bench", mib, 1, write_cache)
        self.url = "iscsi://127.0.0.1:%d/%s/1" % (port, IQN)

    def lun(self, name, mib, number, write_cache=False):
        words = ["lun", "create", name, "--volume", "bench", "--size", "%dMiB" % mib, "--group", "everyone",
                 "--target", IQN, "--number", str(number)]
        self.cli(*(words + (["--write-cache"] if write_cache else [])))


class HoldfastShares(Node):
    """A node with the shares `bench` (as smbd's: not continuously available) and `ca`."""

    def __init__(self, folder, port, mib):
        super().__init__(folder, mib)
        self.port = port
        self.cli("user", "create", SMB_USER, "--password-stdin", told=SMB_PASSWORD)
        self.cli("smb", "set", "--listen", "127.0.0.1:%d" % port, "--signing", "offered")
        self.cli("share", "create", "bench", "--full", SMB_USER, "--no-ca")
        self.cli("share", "create", "ca", "--full", SMB_USER)


class Smbd:
    """Debian's smbd with the share `bench`, as it comes but for its folders, its port and logging."""

    def __init__(self, folder, port):
        self.name, self.folder, self.port = "smbd", folder, port
        data = os.path.join(folder, "data")
        for name in ("data", "state"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        os.chmod(data, 0o777)
        places = "".join("  %s = %s/state\n" % (what, folder) for what in (
            "lock directory", "state directory", "cache directory", "private dir", "pid directory", "ncalrpc dir"))
        self.config = os.path.join(folder, "smb.conf")
        with open(self.config, "w") as f:
            f.write("[global]\n  server role = standalone server\n  interfaces = 127.0.0.0/8\n"
                    "  bind interfaces only = yes\n  smb ports = %d\n%s  log file = %s/log\n  log level = 0\n"
                    "  disable netbios = yes\n  load printers = no\n  printing = bsd\n  disable spoolss = yes\n"
                    "  server multi channel support = yes\n  smb2 max credits = 8192\n  force user = root\n"
                    "[bench]\n  path = %s\n  read only = no\n" % (port, places, folder, data))
        if subprocess.call(["id", SMB_USER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
            subprocess.run(["useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", SMB_USER], check=True)
        subprocess.run(["smbpasswd", "-c", self.config, "-s", "-a", SMB_USER], check=True, capture_output=True,
                       input="%s\n%s\n" % (SMB_PASSWORD, SMB_PASSWORD), text=True)
        # In a session of its own: it signals its whole process group when it ends.
        self.process = subprocess.Popen(["smbd", "-F", "--no-process-group", "-s", self.config], start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("smbd", lambda: self.process.poll() is not None or listens(port))
        if self.process.poll() is not None:
            raise RuntimeError("smbd ended")

    def pid(self):
        """smbd serves each client in a process of its own: the figures are those of all."""
        return self.process.pid

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
