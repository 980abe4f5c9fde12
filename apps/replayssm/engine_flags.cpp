#include "engine_flags.h"

#include <fmt/format.h>

#include "embedded_model.h"
#include "ops/cpu_isa.h"

namespace replayssm::cli {

void add_cpu_isa(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--cpu-isa",
          [](const std::string& name) {
            const Status status = force_cpu_isa(name);
            if (!status.ok()) throw CLI::ValidationError(status.error().message);
          },
          fmt::format("Instruction set of the vectorised functions: {{auto,{}}} on this machine",
                      fmt::join(cpu_isas(), ",")))
      ->default_str("auto");
}

void EngineFlags::add_to(CLI::App& command, bool with_replay_switch) {
  command
      .add_option("--model-path", model_path,
                  "Directory of a Hugging Face checkpoint. Default: the model that comes with the "
                  "program")
      ->check(CLI::ExistingDirectory);
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
                   "Bits that do not depend on batch mates, chunk sizes or threads");
  command.add_option("--threads", threads, "Threads of the computation. Default: one a core")
      ->check(CLI::Range(1, 1024));
  add_cpu_isa(command);
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
  options.recurrence = disable_replay ? Recurrence::packed : Recurrence::replay;
  options.fold_block = fold_block;
  options.state_type = dtype_named(state_type).value_or(DType::f32);
  options.activations = dtype_named(activations);  // none for "auto"
  options.deterministic = deterministic;
  options.threads = threads;
  return options;
}

}  // namespace replayssm::cli
