#!/bin/bash
# Builds the web pages into web/dist, which the node embeds when it is built. Does nothing when they are newer than their sources.
#
#   build.sh [--optional]     with --optional a machine without Node.js is no failure: the node then says that it has no pages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

lacks() {
    echo "web: $1"
    [ "${optional:-}" = --optional ] && { echo "web: the node is built without new pages"; exit 0; }
    exit 1
}
optional=${1:-}
major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/') || true
[ "${major:-0}" -ge 18 ] || lacks "Node.js 18 or newer is needed (package nodejs)"
command -v npm >/dev/null || lacks "npm is needed (package npm)"

# Dependencies as the lock file has them, once for each state of it.
wanted=$(sha256sum package-lock.json)
if [ "$(cat node_modules/.holdfast-lock 2>/dev/null)" != "$wanted" ]; then
    npm ci --no-audit --no-fund --loglevel=error || lacks "the dependencies could not be fetched"
    echo "$wanted" >node_modules/.holdfast-lock
fi
sources="src e2e tools public index.html package.json package-lock.json tsconfig.json vite.config.ts ../docs/openapi.json"
# shellcheck disable=SC2086 # one word each
if [ -e dist/index.html ] && [ -z "$(find $sources -newer dist/index.html -type f ! -name schema.d.ts ! -name roles.ts -print -quit)" ]; then
    exit 0
fi
npm run --silent build
