#include "bench_engine.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "command.h"
#include "engine_bench_report.h"
#include "engine_flags.h"
#include "terminal.h"

namespace replayssm::cli {
namespace {

struct BenchEngineFlags {
  EngineFlags engine;
  bench::EngineBenchOptions options;
  double accepted_length = 0;  // 0: not simulated
  bool json = false;
};

int bench_engine(BenchEngineFlags& flags) {
  auto engine = flags.engine.options();
  if (!engine) {
    return fail(engine.error());
  }
  flags.options.engine = std::move(*engine);
  if (flags.accepted_length > 0) flags.options.simulated_accepted_length = flags.accepted_length;
  const auto report = bench::run_engine_bench(flags.options);
  if (!report) {
    return fail(report.error());
  }
  if (flags.json) {
    fmt::print("{}\n", bench::to_json(flags.options, *report).dump());
  } else {
    fmt::print("{}", bench::to_text(flags.options, *report));
  }
  return kSuccess;
}

}  // namespace

void add_bench_engine(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<BenchEngineFlags>();
  CLI::App* command = bench.add_subcommand(
      "engine", "Decode with a whole model: replay on and off, with and without drafts");
  command->add_option("--batch", flags->options.batch, "Sequences that decode together")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--context", flags->options.context, "Random tokens of every prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--max-tokens", flags->options.outputs, "Decoded tokens of every sequence")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--skip-prefill", flags->options.skip_prefill,
                    "Begin behind the prompts, with random numbers for what they would have left");
  command->add_option("--temperature", flags->options.temperature, "0: the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", flags->options.top_k, "Sample from so many tokens. 0: from all")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command
      ->add_option("--top-p", flags->options.top_p,
                   "Sample from the most likely tokens that reach this together")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  flags->engine.add_to(*command, false);
  flags->engine.add_load_format_to(*command);
  flags->engine.add_speculation_to(*command);
  command
      ->add_option(
          "--simulated-accepted-length", flags->accepted_length,
          "Replace the drafts, once they are made, by ones of which so many are right that "
          "a window commits this many tokens in the mean")
      ->check(CLI::Range(1.0, 1024.0));
  command->add_flag("--json", flags->json, "One JSON object instead of text");
  command->footer(
      "Times are for one run of every mode; the bound is what a step has to read and write, at the "
      "measured read ceiling.\n"
      "Example: replayssm bench engine --model-path DIR --load-format dummy --batch 8 --context "
      "256 "
      "--speculative-algorithm MTP --simulated-accepted-length 3 --json");
  command->callback([flags, &exit_code] { exit_code = bench_engine(*flags); });
}

}  // namespace replayssm::cli
