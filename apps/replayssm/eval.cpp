// replayssm eval: exact-match scores of a checkpoint's held-out questions.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "engine/scheduler.h"
#include "engine_flags.h"
#include "eval_tasks.h"
#include "interrupt.h"
#include "log_probabilities.h"
#include "prompt_text.h"
#include "table.h"
#include "terminal.h"

namespace replayssm::cli {
namespace {

constexpr int kBatch = 16;

struct EvalFlags {
  EngineFlags engine;
  int limit = 0;
  std::string replay = "both";
  bool json = false;
};

// Right answers and questions of each task, in the order in which the tasks first appear.
struct Scores {
  struct Task {
    std::string name;
    int right = 0;
    int asked = 0;
    std::int64_t windows = 0;
    std::int64_t drafts_accepted = 0;
    // Tokens that a verification window brings, its correction or bonus included.
    double accepted_length() const {
      if (windows == 0) return 0;
      return 1.0 + static_cast<double>(drafts_accepted) / static_cast<double>(windows);
    }
    double score() const { return asked == 0 ? 0 : static_cast<double>(right) / asked; }
  };
  std::vector<Task> tasks;
  double seconds = 0;
  SequenceCounters counters;

  Task& task(const std::string& name) {
    for (Task& known : tasks) {
      if (known.name == name) return known;
    }
    return tasks.emplace_back(Task{name});
  }
};

struct Asked {
  const EvalQuestion* question = nullptr;
  std::vector<TokenId> tokens;
};

Result<std::vector<Asked>> encode(const std::vector<EvalQuestion>& questions,
                                  const std::filesystem::path& directory,
                                  const Tokenizer& tokenizer) {
  const auto chat_template = ChatTemplate::load(directory);
  if (!chat_template) return chat_template.error();
  std::vector<Asked> asked;
  for (const EvalQuestion& question : questions) {
    auto tokens = chat_tokens(tokenizer, *chat_template, question.messages, question.tools);
    if (!tokens) return tokens.error();
    asked.push_back({&question, std::move(*tokens)});
  }
  return asked;
}

// Greedy answers to all questions, sixteen at a time.
Result<Scores> run(const EngineOptions& options, const std::vector<Asked>& asked,
                   const Tokenizer& tokenizer, const InterruptGuard& interrupt,
                   const std::string& what) {
  auto engine = Engine::create(options);
  if (!engine) return engine.error();
  Scheduler scheduler(**engine);
  SamplingParams greedy;
  greedy.temperature = 0;
  std::map<GenerationId, const EvalQuestion*> questions;
  Scores scores;
  for (const Asked& each : asked) {
    scores.task(each.question->task);
    const auto id = scheduler.submit({each.tokens, greedy, each.question->max_tokens, false});
    if (!id) return id.error();
    questions[*id] = each.question;
  }
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress(what);
  long finished_count = 0;
  while (!scheduler.idle()) {
    if (interrupt.interrupted()) return Error{"interrupted"};
    auto events = scheduler.step();
    if (!events) return events.error();
    for (const Finished& finished : events->finished) {
      if (finished.error) return *finished.error;
      const EvalQuestion& question = *questions[finished.request];
      Scores::Task& task = scores.task(question.task);
      ++task.asked;
      task.right += is_right(tokenizer.decode(finished.output, true), question) ? 1 : 0;
      scores.counters.tokens_evaluated += finished.counters.tokens_evaluated;
      scores.counters.folds += finished.counters.folds;
      scores.counters.state_bytes_read += finished.counters.state_bytes_read;
      scores.counters.state_bytes_written += finished.counters.state_bytes_written;
      scores.counters.windows += finished.counters.windows;
      scores.counters.drafts += finished.counters.drafts;
      scores.counters.drafts_accepted += finished.counters.drafts_accepted;
      task.windows += finished.counters.windows;
      task.drafts_accepted += finished.counters.drafts_accepted;
      progress.update(++finished_count, static_cast<long>(asked.size()));
    }
  }
  scores.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return scores;
}

// The right answers, teacher-forced, with the state type asked for against a float32 state.
Result<LogProbabilityDifference> compare_state_types(const EngineOptions& options,
                                                     const std::vector<Asked>& asked,
                                                     const Tokenizer& tokenizer,
                                                     const InterruptGuard& interrupt) {
  std::vector<GivenAnswer> answers;
  for (const Asked& each : asked) {
    // The checkpoint's own file; the marks of a tool call in it are the model's control tokens.
    const auto answer = tokenizer.encode_with_added_tokens(each.question->expected);
    if (answer.empty()) continue;
    GivenAnswer& given = answers.emplace_back(GivenAnswer{each.tokens, each.tokens.size()});
    given.tokens.insert(given.tokens.end(), answer.begin(), answer.end());
  }
  const auto run = [&](DType state_type) {
    EngineOptions typed = options;
    typed.state_type = state_type;
    ProgressLine progress(fmt::format("log-probabilities, {} state", name_of(state_type)));
    return log_probabilities(typed, answers, [&](std::size_t done) {
      progress.update(static_cast<long>(done), static_cast<long>(answers.size()));
      return !interrupt.interrupted();
    });
  };
  const auto expected = run(DType::f32);
  if (!expected) return expected.error();
  const auto found = run(options.state_type);
  if (!found) return found.error();
  return compare_log_probabilities(*expected, *found);
}

nlohmann::ordered_json to_json(const LogProbabilityDifference& difference) {
  nlohmann::ordered_json json;
  json["tokens"] = difference.tokens;
  json["mean_float32_state"] = difference.mean_expected;
  json["mean"] = difference.mean_found;
  json["mean_difference"] = difference.mean_difference;
  json["largest_difference"] = difference.largest_difference;
  return json;
}

nlohmann::ordered_json to_json(const Scores& scores) {
  nlohmann::ordered_json json;
  for (const auto& task : scores.tasks) json["tasks"][task.name] = task.score();
  if (scores.counters.windows > 0) {
    for (const auto& task : scores.tasks) {
      json["accepted_length"][task.name] = task.accepted_length();
    }
    json["windows"] = scores.counters.windows;
    json["drafts"] = scores.counters.drafts;
    json["drafts_accepted"] = scores.counters.drafts_accepted;
  }
  json["seconds"] = scores.seconds;
  json["tokens_evaluated"] = scores.counters.tokens_evaluated;
  json["folds"] = scores.counters.folds;
  json["state_bytes_read"] = scores.counters.state_bytes_read;
  json["state_bytes_written"] = scores.counters.state_bytes_written;
  return json;
}

void print(const std::vector<std::pair<std::string, Scores>>& runs) {
  std::vector<std::string> header{"task", "questions"};
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, scores] : runs) header.push_back("replay " + name);
  const Scores& first = runs.front().second;
  for (std::size_t i = 0; i < first.tasks.size(); ++i) {
    std::vector<std::string> row{first.tasks[i].name, std::to_string(first.tasks[i].asked)};
    for (const auto& [name, scores] : runs) {
      row.push_back(fmt::format("{:.3f}", scores.tasks[i].score()));
      if (scores.counters.windows > 0) {
        row.back() += fmt::format(", {:.2f} a window", scores.tasks[i].accepted_length());
      }
    }
    rows.push_back(std::move(row));
  }
  const auto line = [&](std::string title, auto&& value) {
    std::vector<std::string> row{std::move(title), ""};
    for (const auto& [name, scores] : runs) row.push_back(value(scores));
    rows.push_back(std::move(row));
  };
  line("seconds", [](const Scores& s) { return fmt::format("{:.1f}", s.seconds); });
  line("state read", [](const Scores& s) { return format_bytes(s.counters.state_bytes_read); });
  line("state written",
       [](const Scores& s) { return format_bytes(s.counters.state_bytes_written); });
  fmt::print("{}", format_table(header, rows, {1, 2, 3}));
}

int eval(const EvalFlags& flags) {
  const InterruptGuard interrupt;
  auto options = flags.engine.options();
  if (!options) return fail(options.error());
  const auto questions = load_questions(options->model_path / "eval.jsonl", flags.limit);
  if (!questions) return fail(questions.error());
  const auto tokenizer = Tokenizer::load(options->model_path);
  if (!tokenizer) return fail(tokenizer.error());
  const auto asked = encode(*questions, options->model_path, *tokenizer);
  if (!asked) return fail(asked.error());
  if (asked->empty()) return fail(Error{"eval.jsonl: no questions"});

  options->max_running_requests = kBatch;
  for (const Asked& each : *asked) {
    options->context_length = std::max(
        options->context_length, static_cast<int>(each.tokens.size()) + each.question->max_tokens);
  }
  std::vector<std::pair<std::string, Scores>> runs;
  for (const std::string name : {"on", "off"}) {
    if (flags.replay != "both" && flags.replay != name) continue;
    EngineOptions asked_for = *options;
    if (name == "off") {
      asked_for.recurrence = Recurrence::packed;
      asked_for.speculation = {};  // needs the ring
    }
    auto scores = run(asked_for, *asked, *tokenizer, interrupt, "eval, replay " + name);
    if (!scores) return fail(scores.error(), interrupt.interrupted() ? kInterrupted : kFailure);
    runs.emplace_back(name, std::move(*scores));
  }
  std::optional<LogProbabilityDifference> difference;
  if (options->state_type != DType::f32) {
    options->recurrence = flags.replay == "off" ? Recurrence::packed : Recurrence::replay;
    options->speculation = {};  // nothing is generated
    const auto compared = compare_state_types(*options, *asked, *tokenizer, interrupt);
    if (!compared) return fail(compared.error(), interrupt.interrupted() ? kInterrupted : kFailure);
    difference = *compared;
  }
  if (flags.json) {
    nlohmann::ordered_json json;
    json["tasks"] = to_json(runs.front().second)["tasks"];
    for (const auto& [name, scores] : runs) json["replay"][name] = to_json(scores);
    if (difference) json["log_probabilities"] = to_json(*difference);
    fmt::print("{}\n", json.dump());
  } else {
    print(runs);
    if (difference) {
      fmt::print(
          "right answers, teacher-forced, {} tokens: mean log-probability {:.5f} with a float32 "
          "state, {:.5f} with {}; they differ by {:.2e} on average, {:.2e} at most\n",
          difference->tokens, difference->mean_expected, difference->mean_found,
          name_of(options->state_type), difference->mean_difference,
          difference->largest_difference);
    }
  }
  return kSuccess;
}

}  // namespace

void add_eval(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand(
      "eval", "Exact-match scores over the questions in eval.jsonl of the model's directory");
  command
      ->add_option("--limit", flags->limit, "Only the first N questions of each task; 0 takes all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command
      ->add_option("--replay", flags->replay,
                   "Whether the state goes through the ring (on), is written every token (off), or "
                   "one after the other (both). Drafts are verified with the ring only")
      ->check(CLI::IsMember({"on", "off", "both"}))
      ->capture_default_str();
  flags->engine.add_to(*command, false);
  flags->engine.add_load_format_to(*command);
  flags->engine.add_speculation_to(*command);
  command->add_flag("--json", flags->json,
                    "One JSON object: {\"tasks\": {NAME: SCORE}, \"replay\": ...}");
  command->footer(
      "Answers are greedy, sixteen questions at a time in the file's order. With another state "
      "type "
      "than float32, the log-probabilities of the right answers are also compared with those that "
      "a "
      "float32 state gives.");
  command->callback([flags, &exit_code] { exit_code = eval(*flags); });
}

}  // namespace replayssm::cli
