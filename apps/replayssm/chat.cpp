// replayssm chat: a conversation on the terminal.
#include <unistd.h>

#include <algorithm>
#include <iostream>
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

namespace replayssm::cli {
namespace {

// Tokens of a conversation where none are asked for; memory for all of them is set aside.
constexpr int kUsualContext = 8192;

struct ChatFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  int max_tokens = 512;
  int context_length = 0;
  bool json = false;
};

// One conversation. Its sequence stays in memory between turns, and a turn evaluates only what the
// sequence does not have yet.
class Conversation {
 public:
  Conversation(const ChatFlags& flags, Engine& engine, const Tokenizer& tokenizer,
               const ChatTemplate& chat_template)
      : flags_(flags),
        engine_(engine),
        tokenizer_(tokenizer),
        chat_template_(chat_template),
        scheduler_(engine) {}

  // Adds the message and streams the answer. On an error the message is taken back.
  Status answer(const std::string& message, const InterruptGuard& interrupt) {
    messages_.push_back({{"role", "user"}, {"content", message}});
    const Status status = answer_last(interrupt);
    if (!status.ok()) messages_.erase(messages_.end() - 1);
    return status;
  }

  void reset() {
    messages_ = nlohmann::ordered_json::array();
    sequence_ = Sequence{};
  }

 private:
  Status answer_last(const InterruptGuard& interrupt) {
    auto tokens = chat_tokens(tokenizer_, chat_template_, messages_);
    if (!tokens) return tokens.error();
    const int room = engine_.context_length() - static_cast<int>(tokens->size());
    if (room < 1) {
      const bool one = messages_.size() == 1;
      return Error{fmt::format("the {} has {} tokens, the context {}{}",
                               one ? "message" : "conversation", tokens->size(),
                               engine_.context_length(), one ? "" : "; /reset starts anew")};
    }
    const int max_tokens = std::min(flags_.max_tokens, room);
    const auto sampling = flags_.sampling.resolve(engine_.config().generation);
    if (!sampling) return sampling.error();

    const bool goes_on = sequence_.memory && engine_.extend(sequence_, *tokens, *sampling).ok();
    if (!goes_on) sequence_ = Sequence{};
    const auto id = goes_on ? scheduler_.submit(std::move(sequence_), max_tokens)
                            : scheduler_.submit({std::move(*tokens), *sampling, max_tokens, false});
    if (!id) return id.error();
    auto streamed = stream(scheduler_, *id, tokenizer_, interrupt, [&](std::string_view piece) {
      if (!flags_.json) print_now(piece);
    });
    if (!streamed) return streamed.error();
    if (flags_.json) {
      const auto json = report(streamed->finished, streamed->text, engine_, *sampling, 0);
      print_now(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    }
    print_now("\n");
    if (streamed->finished.error) return *streamed->finished.error;
    messages_.push_back({{"role", "assistant"}, {"content", streamed->text}});
    sequence_ = std::move(streamed->finished.sequence);
    return {};
  }

  const ChatFlags& flags_;
  Engine& engine_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  Scheduler scheduler_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  Sequence sequence_;
};

int chat(const ChatFlags& flags) {
  InterruptGuard interrupt;
  if (const auto check = flags.sampling.resolve({}); !check) return fail(check.error(), kBadFlags);
  auto options = flags.engine.options();
  if (!options) return fail(options.error());
  const auto config = load_config(options->model_path);
  if (!config) return fail(config.error());
  const auto tokenizer = Tokenizer::load(options->model_path);
  if (!tokenizer) return fail(tokenizer.error());
  const auto chat_template = ChatTemplate::load(options->model_path);
  if (!chat_template) return fail(chat_template.error());
  if (flags.context_length > config->max_positions) {
    return fail(refuse("--context-length", flags.context_length,
                       fmt::format("at most the model's {}", config->max_positions)),
                kBadFlags);
  }
  options->context_length = flags.context_length > 0
                                ? flags.context_length
                                : std::min(kUsualContext, config->max_positions);
  auto engine = Engine::create(*options);
  if (!engine) return fail(engine.error());

  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) print_now("/reset starts anew, /exit or Ctrl-D ends, Ctrl-C stops an answer.\n");
  Conversation conversation(flags, **engine, *tokenizer, *chat_template);
  int exit_code = kSuccess;
  std::string line;
  while (true) {
    if (terminal) print_now("> ");
    if (!std::getline(std::cin, line)) {
      if (interrupt.interrupted()) exit_code = kInterrupted;
      break;
    }
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
    if (line == "/exit") break;
    if (line == "/reset") {
      conversation.reset();
      continue;
    }
    const Status status = conversation.answer(line, interrupt);
    if (!status.ok()) exit_code = fail(status.error());
    // On a terminal an interrupt ends the answer; otherwise nobody is there to go on.
    if (interrupt.interrupted() && !terminal) return kInterrupted;
    interrupt.clear();
  }
  if (terminal) print_now("\n");
  return exit_code;
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = app.add_subcommand("chat", "Talk with the model, one line a message");
  command->add_option("--max-tokens", flags->max_tokens, "Longest answer, in tokens")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command
      ->add_option(
          "--context-length", flags->context_length,
          "Longest conversation, in tokens. Default: 8192, or the model's context if that is "
          "shorter")
      ->check(CLI::Range(1, 1 << 30));
  flags->sampling.add_to(*command);
  flags->engine.add_to(*command);
  flags->engine.add_load_format_to(*command);
  flags->engine.add_speculation_to(*command);
  command->add_flag("--json", flags->json,
                    "Instead of the text, one JSON object for each answer, with timings and folds");
  command->footer(
      "A line is a message. /reset starts a new conversation, /exit or the end of the input ends.");
  command->callback([flags, &exit_code] { exit_code = chat(*flags); });
}

}  // namespace replayssm::cli
