#include "report.h"

#include <string>

namespace replayssm::cli {
namespace {

double rate(std::int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

nlohmann::ordered_json report(const Finished& finished, std::string_view text, const Engine& engine,
                              const SamplingParams& sampling, double load_seconds) {
  const bool replay = engine.model_options().recurrence == Recurrence::replay;
  const std::int64_t prefilled = finished.prompt_tokens - finished.reused_tokens;
  // The first token comes out of the prefill.
  const auto decoded = static_cast<std::int64_t>(finished.output.size()) - 1;

  nlohmann::ordered_json json;
  json["text"] = text;
  json["tokens"] = finished.output;
  json["finish_reason"] = name_of(finished.reason);
  if (finished.error) json["error"] = finished.error->message;
  json["prompt_tokens"] = finished.prompt_tokens;
  json["reused_tokens"] = finished.reused_tokens;
  json["completion_tokens"] = finished.output.size();
  json["seed"] = sampling.seed;
  json["timings"] = {{"load_seconds", load_seconds},
                     {"prefill_seconds", finished.timings.prefill},
                     {"decode_seconds", finished.timings.decode},
                     {"prefill_tokens_per_second", rate(prefilled, finished.timings.prefill)},
                     {"decode_tokens_per_second", rate(decoded, finished.timings.decode)}};
  json["steps"] = finished.counters.steps;
  json["folds"] = finished.counters.folds;
  if (engine.options().speculation.algorithm != SpeculativeAlgorithm::none) {
    const SequenceCounters& counters = finished.counters;
    json["speculation"] = {{"algorithm", name_of(engine.options().speculation.algorithm)},
                           {"window_max", engine.options().window_max},
                           {"windows", counters.windows},
                           {"drafts", counters.drafts},
                           {"drafts_accepted", counters.drafts_accepted}};
  }
  json["state_bytes_read"] = finished.counters.state_bytes_read;
  json["state_bytes_written"] = finished.counters.state_bytes_written;
  nlohmann::ordered_json setup;
  setup["model_path"] = engine.options().model_path.string();
  setup["linear_replayssm"] = replay;
  setup["linear_replayssm_cache_len"] =
      replay ? nlohmann::ordered_json(engine.options().fold_block) : nullptr;
  setup["mamba_ssm_dtype"] = std::string(name_of(engine.options().state_type));
  setup["dtype"] = std::string(name_of(engine.model_options().activations));
  setup["deterministic"] = engine.model_options().deterministic;
  setup["threads"] = engine.threads();
  json["engine"] = std::move(setup);
  return json;
}

}  // namespace replayssm::cli
