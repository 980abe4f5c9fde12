#include "bench_serve.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "command.h"
#include "interrupt.h"
#include "load/load_prompts.h"
#include "load/load_report.h"
#include "terminal.h"

namespace replayssm::cli {
namespace {

struct BenchServeFlags {
  std::string url = "http://127.0.0.1:8000";
  std::string endpoint = "chat";
  std::string prompts_file;
  load::PromptOptions prompts;
  load::LoadOptions load;
  bool stop_at_eos = false;
  bool json = false;
};

Result<load::LoadOptions> load_options(const BenchServeFlags& flags) {
  load::LoadOptions options = flags.load;
  const auto url = load::parse_url(flags.url);
  if (!url) return url.error();
  options.url = *url;
  options.endpoint = flags.endpoint == "chat" ? load::Endpoint::chat : load::Endpoint::completions;
  options.ignore_eos = !flags.stop_at_eos;
  options.seed = flags.prompts.seed;
  if (flags.prompts_file.empty()) {
    options.prompts = load::random_prompts(flags.prompts);
  } else {
    auto prompts = load::prompts_of_file(flags.prompts_file, flags.prompts.requests);
    if (!prompts) return prompts.error();
    options.prompts = std::move(*prompts);
  }
  return options;
}

int bench_serve(const BenchServeFlags& flags) {
  auto options = load_options(flags);
  if (!options) {
    print_error(options.error().message);
    return kBadFlags;
  }
  if (options->model.empty()) {
    auto model = load::first_model(options->url, options->api_key);
    if (!model) {
      print_error(model.error().message);
      return kFailure;
    }
    options->model = std::move(*model);
  }
  const InterruptGuard interrupt;
  ProgressLine progress("requests");
  const load::LoadResult result = run_load(*options, [&](std::size_t ended) {
    progress.update(static_cast<long>(ended), static_cast<long>(options->prompts.size()));
    return !interrupt.interrupted();
  });
  progress.done();
  const load::LoadSummary summary = load::summary_of(result);
  if (flags.json) {
    fmt::print("{}\n", to_json(*options, summary).dump());
  } else {
    fmt::print("{}", to_text(*options, summary));
  }
  if (summary.interrupted) return kInterrupted;
  return summary.failed > 0 ? kFailure : kSuccess;
}

void add_requests(CLI::App& command, BenchServeFlags& flags) {
  constexpr int kMost = 10'000'000;
  command.add_option("--url", flags.url, "Where the server is: http://HOST[:PORT][/PATH]")
      ->capture_default_str();
  command.add_option("--requests", flags.prompts.requests, "Requests in all")
      ->check(CLI::Range(1, kMost))
      ->capture_default_str();
  command.add_option("--concurrency", flags.load.concurrency, "Requests at a time")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command
      .add_option("--endpoint", flags.endpoint,
                  "chat: /v1/chat/completions; completions: /v1/completions")
      ->check(CLI::IsMember({"chat", "completions"}))
      ->capture_default_str();
  command.add_option("--model", flags.load.model,
                     "Name of the model. Default: the first that the server lists");
  command.add_option("--api-key", flags.load.api_key, "Sent as Authorization: Bearer KEY")
      ->envname("REPLAYSSM_API_KEY");
  command
      .add_option("--timeout", flags.load.timeout,
                  "Seconds of silence after which a request has failed")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
}

void add_content(CLI::App& command, BenchServeFlags& flags) {
  constexpr int kMostWords = 1'000'000;
  CLI::Option* words =
      command.add_option("--prompt-words", flags.prompts.words, "Random words of a prompt")
          ->check(CLI::Range(1, kMostWords))
          ->capture_default_str();
  CLI::Option* prefix =
      command
          .add_option("--prefix-words", flags.prompts.prefix_words,
                      "Random words that all prompts begin with, beside their own")
          ->check(CLI::Range(0, kMostWords))
          ->capture_default_str();
  command
      .add_option("--prompts", flags.prompts_file,
                  "File with a prompt on each line, instead of random words; used again from the "
                  "top where there are fewer than --requests")
      ->excludes(words)
      ->excludes(prefix);
  command.add_option("--max-tokens", flags.load.max_tokens, "Output tokens of a request")
      ->check(CLI::Range(1, kMostWords))
      ->capture_default_str();
  command.add_flag("--stop-at-eos", flags.stop_at_eos,
                   "Let the model end before --max-tokens, instead of sending ignore_eos");
  command.add_option("--temperature", flags.load.temperature, "0 is greedy")
      ->check(CLI::Range(0.0, 5.0))
      ->capture_default_str();
  command
      .add_option("--seed", flags.prompts.seed,
                  "Of the random words; request i is sampled with it + i")
      ->capture_default_str();
  command.add_flag("--json", flags.json, "One JSON object instead of text");
}

}  // namespace

void add_bench_serve(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<BenchServeFlags>();
  flags->prompts.requests = 100;
  flags->load.concurrency = 8;
  CLI::App* command = bench.add_subcommand(
      "serve", "Load on a running server: time to first token, latencies, throughput");
  add_requests(*command, *flags);
  add_content(*command, *flags);
  command->footer(
      "Exit code 1 if a request failed.\n"
      "Example: replayssm bench serve --url http://127.0.0.1:8000 --requests 200 --concurrency 16");
  command->callback([flags, &exit_code] { exit_code = bench_serve(*flags); });
}

}  // namespace replayssm::cli
