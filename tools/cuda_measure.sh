#!/bin/bash
# Checks, then times the CUDA operations on a GPU: tools/cuda_measure.sh PROGRAMS OUT [REFERENCE_DIRECTORY]
# PROGRAMS holds replayssm, cuda_step_check, cuda_step_racecheck, cuda_step_bench and the operation tests (recurrence_test,
# exactness_test, layer_ops_test, accuracy_test), OUT receives JSON and logs; the last argument is
# bench_cuda.sh's. Steps are limited in time so that a hang in one does not cost the others; PARTS names
# those to run, for machines that are lent for a few minutes: check tests sanitizers engine tables sweep. CHECKS
# is how often the whole cuda_step_check runs, SHARDS among how many processes the longest test is dealt, MODEL
# where the model that comes with the program lies.
set -u
programs=$1
out=$2
parts=" ${PARTS:-check tests sanitizers engine tables sweep} "
export LD_LIBRARY_PATH=$programs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out"
step() {
  local name=$1 limit=$2
  shift 2
  local begin=$SECONDS
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
  echo "== $name: exit status $?, $((SECONDS - begin)) s" | tee -a "$out/$name.log"
}
wanted() { [[ $parts == *" $1 "* ]]; }

nvidia-smi --query-gpu=name,clocks.sm,clocks.mem,driver_version --format=csv
if wanted check; then
  step check_quick 60 "$programs/cuda_step_check" --quick
  tail -20 "$out/check_quick.log"
  for turn in $(seq "${CHECKS:-3}"); do
    step check_$turn 120 "$programs/cuda_step_check" --json "$out/check.json"
  done
  cat "$out"/check_[0-9]*.log >"$out/check.log"
  rm "$out"/check_[0-9]*.log
  tail -48 "$out/check.log"
fi
if wanted tests; then
  export GTEST_TOTAL_SHARDS=${SHARDS:-8}
  for shard in $(seq 0 $((GTEST_TOTAL_SHARDS - 1))); do
    GTEST_SHARD_INDEX=$shard step exactness_${shard}_test 240 "$programs/exactness_test" \
      --gtest_filter='*cuda*' --gtest_brief=1 &
  done
  wait
  unset GTEST_TOTAL_SHARDS
  for test in recurrence_test layer_ops_test accuracy_test; do
    step $test 120 "$programs/$test" --gtest_filter='*cuda*' --gtest_brief=1
  done
  cat "$out"/*_test.log >"$out/operation_tests.log"
  rm "$out"/*_test.log
  grep -E '^==|PASSED|FAILED|SKIPPED \] [0-9]+ test' "$out/operation_tests.log"
fi
if wanted sanitizers; then
  for tool in memcheck racecheck initcheck; do
    check=cuda_step_check
    if [[ $tool == racecheck ]]; then check=cuda_step_racecheck; fi
    step "sanitizer_$tool" 150 compute-sanitizer --tool $tool --error-exitcode 9 "$programs/$check" --quick
    tail -4 "$out/sanitizer_$tool.log"
  done
  # The convolutions have no part in cuda_step_check, and no shared memory.
  for tool in memcheck initcheck; do
    step "sanitizer_conv_$tool" 60 compute-sanitizer --tool $tool --error-exitcode 9 "$programs/layer_ops_test" \
      --gtest_filter='*Convolution*/cuda*' --gtest_brief=1
    tail -4 "$out/sanitizer_conv_$tool.log"
  done
fi
if wanted engine; then
  # A whole model: a prompt chunk, decode steps that fold, tokens drawn and penalised. Under racecheck a step takes
  # seconds, so it gets the prompt and one step behind it, and the device to itself: a longer run beside others
  # was ended by the tool. No filter by kernels' names: with one, racecheck (2025.3) ends in an internal error and
  # the program in an illegal address.
  engine() {
    local name=$1 tokens=$2 tool=$3
    shift 3
    step "sanitizer_engine_$name" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$programs/replayssm" \
      generate --device cuda --model-path "${MODEL:-$(dirname "$0")/../models/tiny}" --chat \
      --prompt "Count from 108 to 131." --max-tokens "$tokens" --seed 3 --temperature 0.7 --top-p 0.95 --top-k 50 \
      --repetition-penalty 1.01 --json "$@"
  }
  engine memcheck_graphs 24 memcheck
  engine memcheck_kernels 24 memcheck --disable-cuda-graph
  engine racecheck 2 racecheck --disable-cuda-graph
  tail -n 3 "$out"/sanitizer_engine_*.log
fi
if wanted tables; then
  step tables 560 "$(dirname "$0")/bench_cuda.sh" "$programs/replayssm" "$out" "${3:-}"
  cat "$out/h200.md"
fi
if wanted sweep; then
  step sweep 100 "$programs/cuda_step_bench" --filter "${SWEEP:-L16}" --json "$out/sweep.json"
fi
