// Sampling defaults that a checkpoint ships in generation_config.json.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"

namespace replayssm {

// Fields that the file does not set stay empty: a request wins over the file, and the file over the
// engine's own defaults.
struct GenerationDefaults {
  std::optional<bool> do_sample;             // false: greedy
  std::optional<double> temperature;         // >= 0
  std::optional<int> top_k;                  // >= 0, 0: off
  std::optional<double> top_p;               // (0, 1]
  std::optional<double> min_p;               // [0, 1]
  std::optional<double> repetition_penalty;  // > 0
  std::optional<double> presence_penalty;    // [-2, 2]
  std::optional<double> frequency_penalty;   // [-2, 2]
  std::vector<TokenId> eos;                  // empty: the file names none
};

// Reads the fields above from `file` and ignores all others. Errors name file, field, value and
// what is accepted; token ids must lie in [0, vocab_rows).
Result<GenerationDefaults> load_generation_defaults(const std::filesystem::path& file,
                                                    int vocab_rows);

}  // namespace replayssm
