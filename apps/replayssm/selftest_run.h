// Feeding known texts through an engine and keeping what comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"

namespace replayssm::cli {

// One line of the self-test's table.
struct Check {
  std::string what;
  std::string compared;
  std::string measured;
  std::string limit;
  bool passed = false;
  bool shown_only = false;  // a measurement without a limit
};

// The table, printed line by line as the checks are made.
class CheckList {
 public:
  void add(const Check& check);
  int passed() const { return passed_; }
  int made() const { return made_; }

 private:
  int passed_ = 0;
  int made_ = 0;
};

// One text on its way through an engine. `logits_hashes` has one entry a position evaluated.
struct Run {
  Sequence sequence;
  std::vector<std::uint64_t> logits_hashes;
};

// A part of a step: the run's next `tokens` tokens.
struct Part {
  Run* run = nullptr;
  int tokens = 1;
  Phase phase = Phase::decode;
};

// Given the position and its logits [vocab_size].
using LogitsSink = std::function<void(const Run&, int position, std::span<const float> logits)>;

Result<Run> start_run(Engine& engine, const std::vector<TokenId>& tokens);

// One step over the parts; hashes the logits of every token, and passes them to `sink` if given.
Status run_step(Engine& engine, std::span<const Part> parts, const LogitsSink& sink = {});

// The rest of the run up to depth `until`, alone, in chunks of at most `chunk` tokens; chunk 0 is
// one chunk. Chunks are never longer than the engine's limit.
Status run_chunks(Engine& engine, Run& run, int until, int chunk, const LogitsSink& sink = {});

// The same token by token as decode steps.
Status run_decode(Engine& engine, Run& run, int until, const LogitsSink& sink = {});

// All that the sequence holds in memory (states, conv tails, records, conv inputs, KV), as the
// bytes that pausing would write.
Result<std::vector<std::byte>> memory_bytes(Engine& engine, const Run& run);

// Whether two runs of one text gave equal logits at every position and equal memory.
struct Difference {
  int positions = 0;  // with other logits
  int of_positions = 0;
  bool memory = false;
  bool any() const { return positions > 0 || memory; }
  std::string text() const;
};
Difference difference(const Run& expected, std::span<const std::byte> expected_memory,
                      const Run& found, std::span<const std::byte> found_memory);

}  // namespace replayssm::cli
