#include "engine_bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "commit.h"
#include "replay/memory_plan.h"

namespace replayssm::bench {

nlohmann::ordered_json to_json(const EngineBenchOptions& o, const EngineBenchReport& r) {
  const nlohmann::ordered_json null = nullptr;
  nlohmann::ordered_json json;
  json["op"] = "engine";
  json["model"] = o.engine.model_path.filename().string();
  json["load_format"] = o.engine.load_format == LoadFormat::dummy ? "dummy" : "auto";
  json["device"] = name_of(o.engine.device);
  json["deterministic"] = o.engine.deterministic;
  json["gpu"] = r.gpu.empty() ? null : nlohmann::ordered_json(r.gpu);
  json["threads"] = r.threads;
  json["batch"] = o.batch;
  json["context"] = o.context;
  json["max_tokens"] = o.outputs;
  json["temperature"] = o.temperature;
  json["top_k"] = o.top_k;
  json["top_p"] = o.top_p;
  json["overlap"] = o.engine.device == DeviceKind::cuda && o.engine.overlap;
  json["state_dtype"] = name_of(o.engine.state_type);
  json["fold_block"] = o.engine.fold_block;
  json["weight_bytes"] = r.weight_bytes;
  const auto allocated = [&](const EngineMemory& memory) {
    return r.gpu.empty() ? null : nlohmann::ordered_json(memory.allocated_bytes);
  };
  json["planned_bytes"] = r.memory.planned_bytes;
  json["allocated_bytes"] = allocated(r.memory);
  json["prefill_tokens_per_s"] =
      r.prefill_tokens_per_s ? nlohmann::ordered_json(*r.prefill_tokens_per_s) : null;
  json["decode_tokens_per_s"] = r.replay.tokens_per_s;
  json["step_us"] = r.replay.step_us;
  json["bytes_per_step"] = r.replay.bytes_per_step;
  json["bound_tokens_per_s"] = r.replay.bound_tokens_per_s;
  json["fraction_of_bound"] = r.replay.fraction_of_bound;
  json["packed_decode_tokens_per_s"] = r.packed.tokens_per_s;
  json["packed_step_us"] = r.packed.step_us;
  json["packed_fraction_of_bound"] = r.packed.fraction_of_bound;
  json["ratio_to_packed"] = r.replay.tokens_per_s / r.packed.tokens_per_s;
  const auto& drafted = r.speculative;
  json["speculative_algorithm"] = drafted ? name_of(o.engine.speculation.algorithm) : null;
  json["window"] = drafted ? nlohmann::ordered_json(drafted->window) : null;
  json["simulated_accepted_length"] =
      o.simulated_accepted_length ? nlohmann::ordered_json(*o.simulated_accepted_length) : null;
  json["accepted_length"] = drafted ? nlohmann::ordered_json(drafted->accepted_length) : null;
  json["speculative_decode_tokens_per_s"] =
      drafted ? nlohmann::ordered_json(drafted->decode.tokens_per_s) : null;
  json["speculative_step_us"] = drafted ? nlohmann::ordered_json(drafted->decode.step_us) : null;
  json["ratio_to_plain"] =
      drafted ? nlohmann::ordered_json(drafted->decode.tokens_per_s / r.replay.tokens_per_s) : null;
  json["speculative_planned_bytes"] =
      drafted ? nlohmann::ordered_json(drafted->memory.planned_bytes) : null;
  json["speculative_allocated_bytes"] = drafted ? allocated(drafted->memory) : null;
  json["ring_bytes"] = drafted ? nlohmann::ordered_json(drafted->ring_bytes) : null;
  json["snapshot_bytes"] = drafted ? nlohmann::ordered_json(drafted->snapshot_bytes) : null;
  json["ceiling_read_gb_per_s"] = r.ceilings.read_gb_per_s;
  json["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  json["commit"] = REPLAYSSM_COMMIT;
  return json;
}

std::string to_text(const EngineBenchOptions& o, const EngineBenchReport& r) {
  std::string text = fmt::format(
      "{} sequences, {} tokens of context each, {} threads; weights {}, in all {}\n"
      "prefill              {:>10} tokens/s\n"
      "decode               {:10.1f} tokens/s, {:.0f} us a step, {:.2f} of the bound ({:.1f} "
      "GB/s)\n"
      "decode, replay off   {:10.1f} tokens/s, {:.0f} us a step; replay is {:.2f} times as fast\n",
      o.batch, o.context, r.threads, format_bytes(r.weight_bytes),
      format_bytes(r.memory.planned_bytes),
      r.prefill_tokens_per_s ? fmt::format("{:.1f}", *r.prefill_tokens_per_s) : "skipped",
      r.replay.tokens_per_s, r.replay.step_us, r.replay.fraction_of_bound, r.ceilings.read_gb_per_s,
      r.packed.tokens_per_s, r.packed.step_us, r.replay.tokens_per_s / r.packed.tokens_per_s);
  if (r.speculative) {
    text += fmt::format(
        "decode with drafts   {:10.1f} tokens/s, {:.0f} us a step of up to {} tokens, {:.2f} of "
        "them accepted; {:.2f} times plain decoding\n",
        r.speculative->decode.tokens_per_s, r.speculative->decode.step_us, r.speculative->window,
        r.speculative->accepted_length, r.speculative->decode.tokens_per_s / r.replay.tokens_per_s);
  }
  return text;
}

}  // namespace replayssm::bench
