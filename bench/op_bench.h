// Times one operation of one layer over a whole ring cycle, beside the packed step and the memory
// ceilings of the same run, and refuses to print a speed when its own output is wrong.
#pragma once

#include <optional>
#include <string>

#include "ceilings.h"
#include "ops/linear_ops.h"

namespace replayssm::bench {

enum class Op { decode, verify, fold, prefill, conv };

struct BenchOptions {
  Op op = Op::decode;
  HeadShape heads{GateKind::gdn, 16, 48};
  int batch = 1;
  DType state = DType::f32;
  int fold_block = 16;
  int window = 1;                  // tokens a step (verify, conv); tokens a chunk (prefill)
  std::optional<int> history;      // live records before the step; nothing: the whole cycle
  double accepted_per_step = 1.0;  // verify
  int records = 0;                 // fold: records a row; 0 means fold_block
  int passes = 5;                  // timed repetitions of a cycle, at most; the median counts
};

struct BenchReport {
  double time_us = 0;    // one layer, one step
  double bytes = 0;      // that had to move, per PERFORMANCE formulas in byte_floor.h
  double floor_us = 0;   // bytes over the copy ceiling
  double max_error = 0;  // relative L2 error of the checked output against float64
  std::optional<double> packed_time_us;
  std::optional<double> packed_fraction_of_update;
  Ceilings ceilings;
};

// The larger of the errors a format may have: 1e-6 for fp32 states, 1e-2 for bf16 (three rounding
// steps of 2^-8 relative, and the delta rule keeps them from adding up).
double error_limit(DType state);

// Error: an argument out of range, or the check of the output failed.
Result<BenchReport> run_bench(const BenchOptions& options, LinearOps& ops, ThreadPool& pool);

}  // namespace replayssm::bench
