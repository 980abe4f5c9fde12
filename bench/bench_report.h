// What a benchmark found, as JSON and for a person.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cuda_bench.h"
#include "op_bench.h"

namespace replayssm::bench {

// One object with a fixed set of keys; null where a key does not apply. ratio_to_packed is packed
// time over replay time: above 1, replay is faster.
nlohmann::ordered_json to_json(const BenchOptions& options, const BenchReport& report,
                               std::string_view device, int threads);
// The same for a GPU: threads and the CPU's instruction set do not apply; gpu, date (UTC), launch,
// and for folds layers and ring_rows are added.
nlohmann::ordered_json to_json(const CudaBenchOptions& options, const CudaBenchReport& report);

// A few lines for a terminal.
std::string to_text(const BenchOptions& options, const BenchReport& report, std::string_view device,
                    int threads);

std::string_view name_of(Op op);
std::string_view name_of(LaunchOrder order);

}  // namespace replayssm::bench
