#include "engine_flags.h"

#include <fmt/format.h>

#include <utility>

#include "embedded_model.h"
#include "engine/memory_needs.h"
#include "ops/cpu_isa.h"
#include "terminal.h"

namespace replayssm::cli {

void add_cpu_isa(CLI::App& command, std::string& given) {
  command
      .add_option_function<std::string>(
          "--cpu-isa",
          [&given](const std::string& name) {
            const Status status = force_cpu_isa(name);
            if (!status.ok()) throw CLI::ValidationError(status.error().message);
            given = name;
          },
          fmt::format("Instruction set of the CPU's vectorised functions: {{auto,{}}} on this "
                      "machine",
                      fmt::join(cpu_isas(), ",")))
      ->default_str("auto");
}

void EngineFlags::add_to(CLI::App& command, bool with_replay_switch) {
  command
      .add_option("--model-path", model_path,
                  "Directory of a Hugging Face checkpoint. Default: the model that comes with the "
                  "program")
      ->check(CLI::ExistingDirectory);
  command.add_option("--device", device, "Where the model runs")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  if (with_replay_switch) {
    command.add_flag("--disable-linear-replayssm", disable_replay,
                     "Write the recurrent state every token instead of logging and folding");
  }
  command
      .add_option("--linear-replayssm-cache-len", fold_block,
                  "Tokens that are folded into the state together")
      ->check(CLI::IsMember({8, 16, 32}))
      ->capture_default_str();
  command
      .add_option("--mamba-ssm-dtype", state_type,
                  "Number format of the recurrent state; records in the ring follow it")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  command
      .add_option("--dtype", activations,
                  "Number format of the activations; weights stay as stored. auto: that of the "
                  "weights")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
      ->capture_default_str();
  command.add_flag("--deterministic", deterministic,
                   "Bits that do not depend on batch mates, chunk sizes, drafts or threads");
  command.add_flag("--disable-cuda-graph", disable_graphs,
                   "With --device cuda: launch every step kernel by kernel");
  command.add_flag("--disable-overlap-schedule", disable_overlap,
                   "With --device cuda: launch a step only when the tokens of the one before have "
                   "been read");
  command.add_option("--threads", threads, "Threads of the computation. Default: one a core")
      ->check(CLI::Range(1, 1024));
  add_cpu_isa(command, cpu_isa);
}

void EngineFlags::add_load_format_to(CLI::App& command) {
  command
      .add_option("--load-format", load_format,
                  "auto: the directory's safetensors files. dummy: random weights of the shapes in "
                  "its config.json, to measure speed")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->capture_default_str();
}

void EngineFlags::add_speculation_to(CLI::App& command) {
  command.add_option("--speculative-algorithm", speculative_algorithm,
                     "Who drafts tokens that the model verifies several at a time: NGRAM; EAGLE "
                     "(NEXTN, MTP), the model's own draft head; DFLASH or DSPARK, a block drafter. "
                     "Default: nobody");
  command
      .add_option(
          "--speculative-num-draft-tokens", draft_tokens,
          "Tokens verified in one step, the newest sampled one included. Default: 12 with "
          "NGRAM, --speculative-num-steps + 1 with EAGLE, the drafter's block with the others")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--speculative-num-steps", draft_steps,
                  "Drafts that a draft head makes one after the other. Default: 3")
      ->check(CLI::Range(1, 1023));
  command.add_option(
      "--speculative-draft-model-path", draft_model_path,
      "Directory of a DFlash or DSpark drafter. Default, with the model that comes with "
      "the program: its own");
  command
      .add_option("--speculative-ragged-verify", ragged_verify,
                  "How requests with different numbers of drafts are verified together. compact: "
                  "each its own. static, cap-accept: all a whole window, of which cap-accept "
                  "believes only the drafts there were. Default: compact")
      ->check(CLI::IsMember({"static", "cap-accept", "compact"}));
  command.add_flag(
      "--speculative-sampled-drafts", sampled_drafts,
      "With a temperature, drafters with weights draw their drafts and rejection sampling decides. "
      "Otherwise the text is that of plain decoding with the same seed");
  command
      .add_option(
          "--speculative-confidence-threshold", confidence_threshold,
          "Drafts are verified up to the first that a DSPARK drafter with a confidence head "
          "holds less likely than this to be accepted. Default: 0, all")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--speculative-step-rates", step_rates,
                     "By what DSPARK chooses how many drafts are verified: measure (how fast steps "
                     "are, at start), none (all are), or a JSON file of tokens and steps a second. "
                     "Default: measure");
}

Result<SpeculationOptions> EngineFlags::speculation() const {
  SpeculationOptions options;
  if (speculative_algorithm.empty()) {
    for (const auto& [flag, given] :
         {std::pair{"--speculative-num-draft-tokens", draft_tokens != 0},
          {"--speculative-num-steps", draft_steps != 0},
          {"--speculative-draft-model-path", !draft_model_path.empty()},
          {"--speculative-ragged-verify", !ragged_verify.empty()},
          {"--speculative-sampled-drafts", sampled_drafts},
          {"--speculative-confidence-threshold", confidence_threshold != 0},
          {"--speculative-step-rates", !step_rates.empty()}}) {
      if (given) return Error{fmt::format("{}: needs --speculative-algorithm", flag)};
    }
    return options;
  }
  const auto algorithm = algorithm_named(speculative_algorithm);
  if (!algorithm) return algorithm.error();
  if (disable_replay) {
    return refuse("--speculative-algorithm", speculative_algorithm,
                  "none with --disable-linear-replayssm");
  }
  const auto ragged = ragged_verify_named(ragged_verify.empty() ? "compact" : ragged_verify);
  if (!ragged) return ragged.error();
  options.algorithm = *algorithm;
  options.draft_tokens = draft_tokens;
  options.steps = draft_steps;
  options.draft_model_path = draft_model_path;
  if (draft_model_path.empty() && model_path.empty() && has_draft_model(*algorithm)) {
    auto drafter = embedded_drafter(*algorithm);
    if (!drafter) return drafter.error();
    options.draft_model_path = std::move(*drafter);
  }
  options.ragged_verify = *ragged;
  options.sampled_drafts = sampled_drafts;
  options.confidence_threshold = confidence_threshold;
  if (!step_rates.empty()) options.step_rates = step_rates;
  return options;
}

Result<std::filesystem::path> EngineFlags::model_directory() const {
  if (model_path.empty()) return embedded_model();
  return std::filesystem::path(model_path);
}

Result<EngineOptions> EngineFlags::options() const {
  auto directory = model_directory();
  if (!directory) return directory.error();
  EngineOptions options;
  options.model_path = *directory;
  options.load_format = load_format == "dummy" ? LoadFormat::dummy : LoadFormat::checkpoint;
  options.device = device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  if (options.device == DeviceKind::cuda && threads != 0) {
    return refuse("--threads", threads, "none with --device cuda");
  }
  options.recurrence = disable_replay ? Recurrence::packed : Recurrence::replay;
  options.fold_block = fold_block;
  options.state_type = dtype_named(state_type).value_or(DType::f32);
  options.activations = dtype_named(activations);  // none for "auto"
  options.deterministic = deterministic;
  if (disable_graphs && options.device != DeviceKind::cuda) {
    return Error{"--disable-cuda-graph: needs --device cuda"};
  }
  options.graphs = !disable_graphs;
  if (disable_overlap && options.device != DeviceKind::cuda) {
    return Error{"--disable-overlap-schedule: needs --device cuda"};
  }
  options.overlap = !disable_overlap;
  options.threads = threads;
  auto speculative = speculation();
  if (!speculative) return speculative.error();
  options.speculation = std::move(*speculative);
  if (options.device == DeviceKind::cuda && cpu_isa != "auto" && !drafts_on_host(options)) {
    return refuse("--cpu-isa", cpu_isa,
                  "auto with --device cuda, unless a DFLASH or DSPARK drafter is on the host");
  }
  std::string note;
  const auto resolved = resolve_speculation(options, &note);
  if (!resolved) return resolved.error();
  if (!note.empty()) print_error(note);
  return options;
}

}  // namespace replayssm::cli
