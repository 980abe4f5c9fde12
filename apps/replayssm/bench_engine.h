// replayssm bench engine: a whole model at a fixed batch, replay on and off, with and without
// drafts.
#pragma once

#include <CLI/CLI.hpp>

namespace replayssm::cli {

void add_bench_engine(CLI::App& bench, int& exit_code);

}  // namespace replayssm::cli
