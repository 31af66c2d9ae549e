#!/usr/bin/env python3
"""Does what a server must refuse, each thing once, and compares the status that comes back.

    errors.py ADDRESS PORT USER PASSWORD READER READERS-PASSWORD API-SOCKET HOLDFAST
"""
import json
import subprocess
import sys
import uuid

from smbprotocol.connection import Connection
from smbprotocol.exceptions import SMBException
from smbprotocol.open import (
    CreateDisposition, CreateOptions, DirectoryAccessMask, FileAttributes, FilePipePrinterAccessMask, ImpersonationLevel,
    Open, ShareAccess,
)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

HOST, PORT, USER, PASSWORD, READER, READER_PASSWORD, SOCKET, HOLDFAST = sys.argv[1:]
ALL = ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE | ShareAccess.FILE_SHARE_DELETE
WRITE = FilePipePrinterAccessMask.GENERIC_READ | FilePipePrinterAccessMask.GENERIC_WRITE
# Those that smbprotocol has no names for, or has them in no message.
NAMES = {0xC0000054: "STATUS_FILE_LOCK_CONFLICT", 0xC0000055: "STATUS_LOCK_NOT_GRANTED", 0xC000006D: "STATUS_LOGON_FAILURE"}
failed = 0


def session(user=USER, password=PASSWORD):
    connection = Connection(uuid.uuid4(), HOST, int(PORT))
    connection.connect()
    it = Session(connection, user, password, require_encryption=False)
    it.connect()
    return it


def tree(it, share):
    found = TreeConnect(it, rf"\\{HOST}\{share}")
    found.connect(require_secure_negotiate=False)
    return found


def file(where, name, access=WRITE, share=ALL, disposition=CreateDisposition.FILE_OPEN_IF, options=0):
    it = Open(where, name)
    it.create(ImpersonationLevel.Impersonation, access, FileAttributes.FILE_ATTRIBUTE_NORMAL, share, disposition,
              options or CreateOptions.FILE_NON_DIRECTORY_FILE)
    return it


def refused(what, status, work):
    global failed
    try:
        work()
        said = "done"
    except SMBException as error:
        text = str(error)
        code = getattr(error, "status", 0)
        said = NAMES.get(code) or next((word.rstrip(":,)") for word in text.split() if word.startswith("STATUS_")), text)
    wanted = status if isinstance(status, tuple) else (status,)
    good = said in wanted
    failed += not good
    print(f"{'ok  ' if good else 'FAIL'} {what}: {said}" + ("" if good else f" instead of {wanted}"))


def cli(*words):
    done = subprocess.run([HOLDFAST, "--node", SOCKET, "--yes", "--json", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout or "{}")


# Who is it, and may it come in?
refused("wrong password", "STATUS_LOGON_FAILURE", lambda: session(password="wrong"))
refused("unknown user", "STATUS_LOGON_FAILURE", lambda: session("nobody-here", "secret"))
mine = session()
theirs = session(READER, READER_PASSWORD)
refused("share without permission", "STATUS_ACCESS_DENIED", lambda: tree(theirs, "mine"))
refused("share that is not there", "STATUS_BAD_NETWORK_NAME", lambda: tree(mine, "nowhere"))

# Names.
share = tree(mine, "mine")
refused("name of 256 characters", "STATUS_OBJECT_NAME_INVALID", lambda: file(share, "x" * 256))
refused("name that none can be", "STATUS_OBJECT_NAME_INVALID", lambda: file(share, "a|b"))
refused("file that is not there", "STATUS_OBJECT_NAME_NOT_FOUND",
        lambda: file(share, "none", disposition=CreateDisposition.FILE_OPEN))
refused("folder that is not there", "STATUS_OBJECT_PATH_NOT_FOUND",
        lambda: file(share, r"none\file", disposition=CreateDisposition.FILE_OPEN))
refused("file that is there already", "STATUS_OBJECT_NAME_COLLISION",
        lambda: [file(share, "there", disposition=CreateDisposition.FILE_CREATE) for _ in range(2)])
refused("a folder as a file", "STATUS_FILE_IS_A_DIRECTORY",
        lambda: [file(share, "folder", DirectoryAccessMask.GENERIC_ALL, options=CreateOptions.FILE_DIRECTORY_FILE),
                 file(share, "folder")])

# What others do with it.
alone = file(share, "alone", share=ShareAccess.FILE_SHARE_READ)
second = tree(session(), "mine")
refused("file that another has for itself", "STATUS_SHARING_VIOLATION", lambda: file(second, "alone"))
reads = file(share, "reads", FilePipePrinterAccessMask.GENERIC_READ)
refused("writing what was opened to read", "STATUS_ACCESS_DENIED", lambda: reads.write(b"no", 0))
alone.close()
refused("closed file", "STATUS_FILE_CLOSED", lambda: alone.write(b"late", 0))

# A range that another has locked: smbprotocol knows no locks, so the request is made by hand.
from smbprotocol.structure import BytesField, IntField, Structure  # noqa: E402
from collections import OrderedDict  # noqa: E402
from smbprotocol.header import Commands  # noqa: E402


class Lock(Structure):
    COMMAND = Commands.SMB2_LOCK

    def __init__(self):
        self.fields = OrderedDict([
            ("structure_size", IntField(size=2, default=48)), ("lock_count", IntField(size=2, default=1)),
            ("sequence", IntField(size=4)), ("file_id", BytesField(size=16)), ("offset", IntField(size=8)),
            ("length", IntField(size=8)), ("flags", IntField(size=4, default=0x12)), ("reserved", IntField(size=4)),
        ])
        super().__init__()


def lock(of):
    request = Lock()
    request["file_id"], request["offset"], request["length"] = of.file_id, 0, 100
    connection, where = of.connection, of.tree_connect
    sent = connection.send(request, where.session.session_id, where.tree_connect_id)
    connection.receive(sent)


held, other = file(share, "locked"), file(second, "locked")
held.write(b"x" * 100, 0)
lock(held)
refused("range that another has locked, to lock", "STATUS_LOCK_NOT_GRANTED", lambda: lock(other))
refused("range that another has locked, to write", "STATUS_FILE_LOCK_CONFLICT", lambda: other.write(b"no", 0))
refused("range that another has locked, to read", "STATUS_FILE_LOCK_CONFLICT", lambda: other.read(0, 10))

# Shares that do not take everything.
only = tree(mine, "readonly")
refused("read-only share", ("STATUS_ACCESS_DENIED", "STATUS_MEDIA_WRITE_PROTECTED"), lambda: file(only, "new"))
small = file(tree(mine, "small"), "big")


def fill():
    block = b"f" * (1 << 20)
    for at in range(1200):
        small.write(block, at << 20)


refused("full volume", "STATUS_DISK_FULL", fill)
refused("size that no volume has", ("STATUS_DISK_FULL", "STATUS_INVALID_PARAMETER"),
        lambda: file(tree(mine, "small"), "huge").write(b"x", (1 << 63) - 10))
small.close()

# A session that the administrator ends.
ended = session()
last = file(tree(ended, "mine"), "last")
cli("session", "end", str(ended.session_id))
refused("session that was ended", ("STATUS_USER_SESSION_DELETED", "STATUS_NETWORK_SESSION_EXPIRED"),
        lambda: last.write(b"late", 0))
sys.exit(1 if failed else 0)
