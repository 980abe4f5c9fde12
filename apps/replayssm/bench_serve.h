// replayssm bench serve: load on a running server.
#pragma once

#include <CLI/CLI.hpp>

namespace replayssm::cli {

// Adds the command below `bench`.
void add_bench_serve(CLI::App& bench, int& exit_code);

}  // namespace replayssm::cli
