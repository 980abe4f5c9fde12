// What a load test asks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"

namespace replayssm::load {

struct PromptOptions {
  int requests = 1;
  int words = 64;        // of each prompt's own part
  int prefix_words = 0;  // that all prompts begin with
  std::uint64_t seed = 0;
};

// Words of two or three syllables, drawn at random; the same for the same options everywhere.
std::vector<std::string> random_prompts(const PromptOptions& options);

// The lines of a text file that are not blank, repeated until there are `requests`. Errors name
// --prompts.
Result<std::vector<std::string>> prompts_of_file(const std::filesystem::path& file, int requests);

}  // namespace replayssm::load
