#!/usr/bin/env bash
# Runs a test of tests/clients in an environment of its own; skips with the reason where there is none.
# Usage: run.sh VENV TEST PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
status=0
"$here/../../tools/make_client_venv.sh" "$1" || status=$?
[ "$status" -eq 0 ] || exit "$status"
export REPLAYSSM_PROGRAM=$3 PYTHONDONTWRITEBYTECODE=1
exec "$1/bin/python" -W error::ResourceWarning "$here/$2" -v
