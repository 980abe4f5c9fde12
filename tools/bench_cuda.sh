#!/usr/bin/env bash
# Times decode, verification, prefill, convolution and fold on this machine's GPU over the batches, gates and state types
# of the tables, and writes h200.json (an array of what `replayssm bench --device cuda --json` prints, each the
# median of five turns) and h200.md. With a directory of reference kernels, such as
# tools/reference_fla, runs DIRECTORY/run.py in between: it prints one JSON object a line with op
# packed_step, decode or prefill, reference (a name and version), gate, state_dtype, value_heads, key_heads,
# batch, time_us, and for prefill window, the tokens of a row. These rows are set beside ours.
# OPS names the operations to time, for several machines or GPUs beside each other: decode verify prefill conv fold.
# Usage: tools/bench_cuda.sh REPLAYSSM OUTPUT_DIRECTORY [REFERENCE_DIRECTORY]
set -euo pipefail
replayssm=$1
out=$2
reference=${3:-}
mkdir -p "$out"
rows=$out/rows.jsonl
: >"$rows"
ops=" ${OPS:-decode verify prefill conv fold} "
bench() {
  if [[ $ops != *" $1 "* ]]; then return; fi
  "$replayssm" bench "$@" --device cuda --json >>"$rows"
}
gdn=(--gate gdn --value-heads 48 --key-heads 16)
kda=(--gate kda --value-heads 32 --key-heads 32)
for state in bf16 fp32; do
  for batch in 1 2 4 8 16 32 64 128 256 512; do
    bench decode "${gdn[@]}" --state-dtype $state --batch $batch
    bench decode "${kda[@]}" --state-dtype $state --batch $batch
  done
done
if [ -n "$reference" ]; then python3 "$reference/run.py" >>"$rows"; fi
for block in 8 32; do
  for state in bf16 fp32; do
    bench decode "${gdn[@]}" --state-dtype $state --batch 128 --fold-block $block
    bench decode "${kda[@]}" --state-dtype $state --batch 128 --fold-block $block
  done
done
for order in plain overlap; do
  for batch in 1 16 128; do
    bench decode "${gdn[@]}" --state-dtype bf16 --batch $batch --launch $order
    bench decode "${kda[@]}" --state-dtype bf16 --batch $batch --launch $order
  done
done
# Verification: eight live records; twelve, so that windows cross a block; and whole speculative
# steps, which fold on read, with as many accepted tokens as the project's targets name.
for window in 4 8 16; do
  for batch in 1 64 128; do
    bench verify "${gdn[@]}" --state-dtype bf16 --batch $batch --window $window --history 8
  done
  bench verify "${gdn[@]}" --state-dtype fp32 --batch 128 --window $window --history 8
  for state in bf16 fp32; do
    bench verify "${kda[@]}" --state-dtype $state --batch 128 --window $window --history 8
  done
done
for history in 0 7 12; do
  bench verify "${gdn[@]}" --state-dtype bf16 --batch 128 --window 8 --history $history
done
bench verify "${gdn[@]}" --state-dtype bf16 --batch 128 --window 4 --accepted-per-step 2.9
for state in bf16 fp32; do
  bench verify "${gdn[@]}" --state-dtype $state --batch 128 --window 8 --accepted-per-step 3.6
  bench verify "${kda[@]}" --state-dtype $state --batch 128 --window 8 --accepted-per-step 3.6
done
# Chunks: one long prompt, and a batch of shorter ones.
for state in bf16 fp32; do
  for shape in "1 8192" "16 1024"; do
    read -r batch tokens <<<"$shape"
    bench prefill "${gdn[@]}" --state-dtype $state --batch $batch --window $tokens
    bench prefill "${kda[@]}" --state-dtype $state --batch $batch --window $tokens
  done
done
for window in 1 4 8 16; do
  for batch in 1 16 128; do
    bench conv "${gdn[@]}" --state-dtype bf16 --batch $batch --window $window
  done
done
bench conv "${gdn[@]}" --state-dtype bf16 --batch 1 --window 8192
bench conv "${gdn[@]}" --state-dtype bf16 --batch 16 --window 1024
for records in 4 16; do
  bench fold "${gdn[@]}" --state-dtype bf16 --batch 128 --layers 48 --ring-rows 16 --records $records
done
for ring in 32 64 128; do
  bench fold "${gdn[@]}" --state-dtype bf16 --batch 128 --layers 48 --ring-rows $ring --records 4
done
bench fold "${gdn[@]}" --state-dtype bf16 --batch 8 --layers 48 --ring-rows 16 --records 4
bench fold --gate gdn --value-heads 12 --key-heads 4 --state-dtype bf16 --batch 1 --layers 48 \
  --ring-rows 16 --records 4
python3 "$(dirname "$0")/bench_cuda_table.py" "$rows" "$out"
rm "$rows"
