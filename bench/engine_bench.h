// A whole model at a fixed batch: a prompt for every sequence, then output tokens, with the
// recurrent state logged and folded, written every step, and with drafts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ceilings.h"
#include "core/result.h"
#include "engine/engine_options.h"

namespace replayssm::bench {

struct EngineBenchOptions {
  // Batch size, context and memory are the benchmark's to set.
  EngineOptions engine;
  int batch = 1;
  int context = 256;  // tokens of every prompt, random ones
  int outputs = 64;   // decoded tokens of every sequence, after the first one
  // Sequences begin with all but the last token of their prompt behind them, and with random
  // numbers for what those left in states, keys and values: for contexts that would take long.
  bool skip_prefill = false;
  // How tokens are chosen; every sequence has a seed of its own.
  double temperature = 0;
  int top_k = 0;
  double top_p = 1;
  // With a speculative algorithm: its drafts are made, but replaced by ones of which so many are
  // right that a window commits this many tokens in the mean. A model with random weights has no
  // drafter that could guess it.
  std::optional<double> simulated_accepted_length;
};

// One way to decode.
struct DecodeTimes {
  double seconds = 0;
  double tokens_per_s = 0;  // output tokens of all sequences
  double step_us = 0;       // the median step
  std::int64_t steps = 0;
  double bytes_per_step = 0;      // that have to be moved; see engine_bench.cpp
  double bound_tokens_per_s = 0;  // at the measured read ceiling
  double fraction_of_bound = 0;
};

// Of everything an engine allocates, weights included.
struct EngineMemory {
  std::int64_t planned_bytes = 0;
  // What is in use on a GPU after decoding, captured steps and libraries included; 0 on the cpu.
  std::int64_t allocated_bytes = 0;
};

struct SpeculativeTimes {
  DecodeTimes decode;
  int window = 0;
  double accepted_length = 0;  // tokens that a window committed, in the mean
  EngineMemory memory;
  // What windows need of all rows: rings, those of convolutions too; and what they would need if
  // every token of a window left a state behind instead.
  std::int64_t ring_bytes = 0;
  std::int64_t snapshot_bytes = 0;
};

struct EngineBenchReport {
  Ceilings ceilings;  // of the device's memory
  std::string gpu;    // empty on the cpu
  int threads = 0;
  std::int64_t weight_bytes = 0;
  EngineMemory memory;  // with replay
  // Unless it was skipped. Of all prompts but the first, where there are several: with it a GPU's
  // libraries are loaded.
  std::optional<double> prefill_tokens_per_s;
  DecodeTimes replay;
  DecodeTimes packed;  // --disable-linear-replayssm
  std::optional<SpeculativeTimes> speculative;
};

// Errors are those of the engine, or name an option of the benchmark.
Result<EngineBenchReport> run_engine_bench(const EngineBenchOptions& options);

}  // namespace replayssm::bench
