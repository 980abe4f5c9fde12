// What a request did, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/engine.h"
#include "engine/scheduler.h"

namespace replayssm::cli {

// One object: text, tokens, finish_reason, prompt_tokens, reused_tokens, seed, timings (seconds and
// tokens a second), steps, folds, bytes of state read and written, and how the engine was set up.
nlohmann::ordered_json report(const Finished& finished, std::string_view text, const Engine& engine,
                              const SamplingParams& sampling, double load_seconds);

}  // namespace replayssm::cli
