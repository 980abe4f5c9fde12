// The questions of an evaluation, and what counts as right.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace replayssm::cli {

// One line of eval.jsonl: {"task", "messages", "tools"?, "max_tokens", "expected"}.
struct EvalQuestion {
  std::string task;
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools;  // null: none
  int max_tokens = 1;
  std::string expected;
};

// The first `limit` questions of each task, in the file's order; limit 0 takes all. Errors name
// file and line.
Result<std::vector<EvalQuestion>> load_questions(const std::filesystem::path& file, int limit);

// Equal once white space is stripped from both ends.
bool is_right(std::string_view answer, const EvalQuestion& question);

}  // namespace replayssm::cli
