#!/usr/bin/env bash
# Times decode on this machine for both gates, both state types and several batches. Each row is
# merged into cpu.json as soon as it is measured, and cpu.md is written from that, so the work can
# be done in pieces:
#   GATES="gdn kda" STATES="fp32 bf16" BATCHES="1 4 16 64 256" THREADS="1 2"   what to measure
#   RESUME=1   leaves out what cpu.json has for this processor and COMMIT (this tree's, if not given)
# Usage: tools/bench_cpu.sh REPLAYSSM OUTPUT_DIRECTORY
set -euo pipefail
replayssm=$1
out=$2
table="$(dirname "$0")/bench_table.py"
mkdir -p "$out"
commit=${COMMIT:-$(git -C "$(dirname "$0")" rev-parse --short HEAD 2>/dev/null || echo unknown)}
for threads in ${THREADS:-1 $(nproc)}; do
  for gate in ${GATES:-gdn kda}; do
    heads=(--value-heads 48 --key-heads 16)
    [ "$gate" = kda ] && heads=(--value-heads 32 --key-heads 32)
    for state in ${STATES:-fp32 bf16}; do
      for batch in ${BATCHES:-1 4 16 64 256}; do
        command=(bench decode --device cpu --gate "$gate" "${heads[@]}" --state-dtype "$state"
          --batch "$batch" --threads "$threads" --json)
        if [ "${RESUME:-}" = 1 ] && python3 "$table" "$out" has "$commit" "${command[*]}"; then
          continue
        fi
        runs=$("$replayssm" "${command[@]}" | tee /dev/stderr)
        if python3 "$table" "$out" close <<<"$runs"; then
          for _ in 2 3 4 5; do
            runs+=$'\n'$("$replayssm" "${command[@]}" | tee /dev/stderr)
          done
        fi
        python3 "$table" "$out" add "${command[*]}" <<<"$runs"
      done
    done
  done
done
