// The flags that decide which engine is made; the same names in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "core/result.h"
#include "engine/engine.h"

namespace replayssm::cli {

struct EngineFlags {
  std::string model_path;
  bool disable_replay = false;
  int fold_block = 16;
  std::string state_type = "float32";
  std::string activations = "auto";
  bool deterministic = false;
  int threads = 0;

  // Adds --model-path, --linear-replayssm-cache-len, --mamba-ssm-dtype, --dtype, --deterministic,
  // --threads and --cpu-isa; `with_replay_switch`: also --disable-linear-replayssm.
  void add_to(CLI::App& command, bool with_replay_switch = true);

  // --model-path, or the embedded model.
  Result<std::filesystem::path> model_directory() const;

  // The options these flags ask for; memory and batch sizes are the command's to set.
  Result<EngineOptions> options() const;
};

// Adds --cpu-isa, which takes effect where it is parsed.
void add_cpu_isa(CLI::App& command);

}  // namespace replayssm::cli
