// What a benchmark of a whole engine found, as JSON and for a person.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine_bench.h"

namespace replayssm::bench {

// One object with a fixed set of keys; null where a key does not apply. Ratios are tokens per
// second over those of plain decoding with the packed step, and with replay.
nlohmann::ordered_json to_json(const EngineBenchOptions& options, const EngineBenchReport& report);

// A few lines for a terminal.
std::string to_text(const EngineBenchOptions& options, const EngineBenchReport& report);

}  // namespace replayssm::bench
