#!/bin/bash
# Makes the Python clients that drive the SMB server, with their own test suites, in a folder of their own. Once; a second
# run finds them there. Without network and without them the tests concerned are skipped.
#
#   prepare.sh FOLDER
set -euo pipefail
folder=$1
python=${PYTHON:-python3}
# Versions are pinned: a suite that changes would fail for others' reasons.
packages="smbprotocol==1.17.0 impacket==0.13.1 pike-smb2==0.4.6 pytest==8.4.2 pytest-mock==3.15.1"
stamp="$packages $($python -c 'import sys; print(sys.version_info[:2])')"
[ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/source"
$python -m venv "$folder/venv"
# shellcheck disable=SC2086 # one word each
"$folder/venv/bin/pip" install -q --disable-pip-version-check $packages
# The wheels leave their tests out; the sources have them.
"$folder/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$folder/source" \
    smbprotocol==1.17.0 impacket==0.13.1
for archive in "$folder"/source/*.tar.gz; do
    tar -xzf "$archive" -C "$folder/source"
done
mkdir "$folder/smbprotocol" "$folder/impacket"
mv "$folder"/source/smbprotocol-*/tests "$folder/smbprotocol/"
mv "$folder"/source/impacket-*/tests "$folder/impacket/"
rm -rf "$folder/source"
echo "$stamp" >"$folder/stamp"
