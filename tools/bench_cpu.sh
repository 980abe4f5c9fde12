#!/usr/bin/env bash
# Times decode on this machine for both gates, both state types and several batches, and writes
# cpu.json (an array of what `replayssm bench --json` prints) and cpu.md.
# Usage: tools/bench_cpu.sh REPLAYSSM OUTPUT_DIRECTORY
set -euo pipefail
replayssm=$1
out=$2
mkdir -p "$out"
rows=()
for gate in gdn kda; do
  heads=(--value-heads 48 --key-heads 16)
  [ "$gate" = kda ] && heads=(--value-heads 32 --key-heads 32)
  for state in fp32 bf16; do
    for batch in 1 4 16 64 256; do
      row=$("$replayssm" bench decode --gate "$gate" "${heads[@]}" --state-dtype "$state" \
        --batch "$batch" --json)
      echo "$row"
      rows+=("$row")
    done
  done
done
printf '%s\n' "${rows[@]}" | python3 "$(dirname "$0")/bench_table.py" "$out"
