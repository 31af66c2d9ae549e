"""What smbprotocol's own tests are given: a server, a plain share, and one of the same name with "-encrypted" behind it.

The tests come from the package's source, which leaves this file out; its fixtures are known by their names only.
"""
import os
import uuid

import pytest
import smbclient


def _server():
    want = ("SMB_USER", "SMB_PASSWORD", "SMB_SERVER", "SMB_PORT", "SMB_SHARE")
    user, password, server, port, share = (os.environ[name] for name in want)
    plain = rf"\\{server}\{share}"
    return user, password, server, int(port), plain, plain + "-encrypted"


@pytest.fixture(scope="module")
def smb_real():
    return _server()


def _clear(path, **login):
    for entry in smbclient.scandir(path, **login):
        # What it is itself, not what a link leads to.
        directory = entry.stat(follow_symlinks=False).st_file_attributes & 0x10
        if directory and not entry.is_symlink():
            _clear(entry.path, **login)
        elif directory:
            smbclient.rmdir(entry.path)
        else:
            smbclient.remove(entry.path)
    smbclient.rmdir(path, **login)


@pytest.fixture(params=["plain", "encrypted"])
def smb_share(request, smb_real):
    user, password, _, port, plain, encrypted = smb_real
    login = {"username": user, "password": password, "port": port}
    folder = "Pýtæs†-💩-" + uuid.uuid4().hex
    # Paths with slashes mean the same as those with backslashes.
    path = f"{plain}\\{folder}" if request.param == "plain" else f"{encrypted}\\{folder}".replace("\\", "/")
    smbclient.mkdir(path, **login)
    yield path
    _clear(path, **login)
