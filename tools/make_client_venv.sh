#!/usr/bin/env bash
# Makes a Python environment with the packages of tests/clients/requirements.txt, or says why it
# cannot. One that is there and holds what is asked for is kept.
# Usage: tools/make_client_venv.sh FOLDER
# Exit code: 0 made; 77 the packages cannot be had here (ctest takes that as skipped).
set -uo pipefail

folder=${1:?usage: tools/make_client_venv.sh FOLDER}
requirements=$(dirname "$0")/../tests/clients/requirements.txt

cmp -s "$requirements" "$folder/requirements.txt" && exit 0

skip() {
  echo "skipped: $1" >&2
  exit 77
}

rm -rf "$folder"
python3 -m venv "$folder" >"$folder.log" 2>&1 || skip "python3 -m venv fails: $(tail -1 "$folder.log")"
timeout 300 "$folder/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
  -r "$requirements" >"$folder.log" 2>&1 || skip "pip cannot install: $(tail -1 "$folder.log")"
cp "$requirements" "$folder/requirements.txt"
