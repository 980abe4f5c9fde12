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
  std::string load_format = "auto";
  std::string device = "cpu";
  bool disable_replay = false;
  int fold_block = 16;
  std::string state_type = "float32";
  std::string activations = "auto";
  bool deterministic = false;
  bool disable_graphs = false;
  bool disable_overlap = false;
  int threads = 0;
  std::string cpu_isa = "auto";
  // Empty: no speculation.
  std::string speculative_algorithm;
  int draft_tokens = 0;  // 0: the algorithm's default, as for steps
  int draft_steps = 0;
  std::string draft_model_path;
  std::string ragged_verify;  // empty: compact
  bool sampled_drafts = false;
  double confidence_threshold = 0;
  std::string step_rates;  // empty: measure

  // Adds --model-path, --device, --linear-replayssm-cache-len, --mamba-ssm-dtype, --dtype,
  // --deterministic, --disable-cuda-graph, --disable-overlap-schedule, --threads and --cpu-isa;
  // `with_replay_switch`: also
  // --disable-linear-replayssm.
  void add_to(CLI::App& command, bool with_replay_switch = true);

  // Adds --load-format, where weights are loaded.
  void add_load_format_to(CLI::App& command);

  // Adds --speculative-algorithm, --speculative-num-draft-tokens, --speculative-num-steps,
  // --speculative-draft-model-path, --speculative-ragged-verify, --speculative-sampled-drafts,
  // --speculative-confidence-threshold and --speculative-step-rates.
  void add_speculation_to(CLI::App& command);

  // --model-path, or the embedded model.
  Result<std::filesystem::path> model_directory() const;

  // The options these flags ask for; memory and batch sizes are the command's to set. Refused by
  // flag: speculation that they do not describe. Windows that are cut are noted on standard error.
  Result<EngineOptions> options() const;

 private:
  Result<SpeculationOptions> speculation() const;
};

// Adds --cpu-isa, which takes effect where it is parsed; `given` outlives the command and is set to
// it.
void add_cpu_isa(CLI::App& command, std::string& given);

}  // namespace replayssm::cli
