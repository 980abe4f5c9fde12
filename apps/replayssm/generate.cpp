// replayssm generate: one prompt, one answer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "command.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "prompt_text.h"
#include "report.h"
#include "sampling_flags.h"
#include "stream.h"
#include "terminal.h"
#include "text/utf8.h"

namespace replayssm::cli {
namespace {

struct GenerateFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string prompt;
  bool chat = false;
  int max_tokens = 256;
  bool max_tokens_given = false;
  bool json = false;
};

Result<std::vector<TokenId>> prompt_tokens(const GenerateFlags& flags, const Tokenizer& tokenizer,
                                           const std::filesystem::path& directory) {
  if (!flags.chat) return tokenizer.encode(flags.prompt);
  const auto chat_template = ChatTemplate::load(directory);
  if (!chat_template) return chat_template.error();
  return chat_tokens(tokenizer, *chat_template, {{{"role", "user"}, {"content", flags.prompt}}});
}

int generate(const GenerateFlags& flags) {
  const InterruptGuard interrupt;
  const auto start = std::chrono::steady_clock::now();
  // What is wrong with the flags alone is said before anything is loaded.
  if (const auto check = flags.sampling.resolve({}); !check) return fail(check.error(), kBadFlags);
  auto options = flags.engine.options();
  if (!options) return fail(options.error());
  const auto config = load_config(options->model_path);
  if (!config) return fail(config.error());
  const auto tokenizer = Tokenizer::load(options->model_path);
  if (!tokenizer) return fail(tokenizer.error());
  const auto sampling = flags.sampling.resolve(config->generation);
  if (!sampling) return fail(sampling.error());

  GenerationRequest request;
  auto tokens = prompt_tokens(flags, *tokenizer, options->model_path);
  if (!tokens) return fail(tokens.error());
  if (tokens->empty() && flags.chat) {
    return fail(Error{fmt::format("{}: the chat template gives no text for this message",
                                  options->model_path.string())});
  }
  if (tokens->empty()) return fail(refuse("--prompt", "no text", "at least one token"), kBadFlags);
  if (!is_utf8(flags.prompt)) {
    print_error("--prompt: not valid UTF-8; what is wrong is read as U+FFFD");
  }
  const int room = config->max_positions - static_cast<int>(tokens->size());
  if (room < 1) {
    return fail(refuse("--prompt", fmt::format("{} tokens", tokens->size()),
                       fmt::format("less than the model's context of {}", config->max_positions)),
                kBadFlags);
  }
  if (flags.max_tokens_given && flags.max_tokens > room) {
    return fail(refuse("--max-tokens", flags.max_tokens,
                       fmt::format("at most {}, what the model's context of {} leaves after the "
                                   "prompt's {} tokens",
                                   room, config->max_positions, tokens->size())),
                kBadFlags);
  }
  request.prompt = std::move(*tokens);
  request.sampling = *sampling;
  request.max_tokens = std::min(flags.max_tokens, room);

  options->context_length = static_cast<int>(request.prompt.size()) + request.max_tokens;
  auto engine = Engine::create(*options);
  if (!engine) return fail(engine.error());
  const std::chrono::duration<double> load = std::chrono::steady_clock::now() - start;

  Scheduler scheduler(**engine);
  const auto id = scheduler.submit(std::move(request));
  if (!id) return fail(id.error());
  // With --json, standard output carries the object alone.
  auto streamed = stream(scheduler, *id, *tokenizer, interrupt, [&](std::string_view piece) {
    if (!flags.json) print_now(piece);
  });
  if (!streamed) return fail(streamed.error());
  if (flags.json) {
    const auto json = report(streamed->finished, streamed->text, **engine, *sampling, load.count());
    print_now(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } else {
    print_now("\n");
  }
  if (streamed->finished.error) return fail(*streamed->finished.error);
  return streamed->finished.reason == FinishReason::cancelled ? kInterrupted : kSuccess;
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text, or answer a message");
  command->add_option("--prompt", flags->prompt, "The text to continue, or with --chat the message")
      ->required();
  command->add_flag("--chat", flags->chat, "Apply the checkpoint's chat template to the prompt");
  const CLI::Option* max_tokens =
      command->add_option("--max-tokens", flags->max_tokens, "Longest answer, in tokens")
          ->check(CLI::Range(1, 1 << 30))
          ->capture_default_str();
  flags->sampling.add_to(*command);
  flags->engine.add_to(*command);
  flags->engine.add_load_format_to(*command);
  flags->engine.add_speculation_to(*command);
  command->add_flag("--json", flags->json,
                    "Instead of the text as it comes, one JSON object at the end: text, tokens, "
                    "timings, folds, bytes of state read and written");
  command->footer(
      "With --json, finish_reason is stop (an end token, which is not among the tokens), length or "
      "cancelled; steps counts the evaluations after the prompt.\n"
      "Example: replayssm generate --chat --prompt \"Count from 7 to 12\" --max-tokens 40");
  command->callback([flags, max_tokens, &exit_code] {
    flags->max_tokens_given = max_tokens->count() > 0;
    exit_code = generate(*flags);
  });
}

}  // namespace replayssm::cli
