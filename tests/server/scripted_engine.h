// An engine without a model: says what a test tells it to, one token a step.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/generation_engine.h"

namespace replayssm::server {

// What one choice of a request does.
struct Script {
  std::vector<TokenId> tokens;
  bool ends = true;                // with an end token; otherwise it goes on until max_tokens
  std::optional<int> error_after;  // tokens, then FinishReason::error
  int prompt_steps = 1;            // steps before the first token
};

// Events come from whoever calls step(), or from run()'s thread.
class ScriptedEngine final : public GenerationEngine {
 public:
  using Writer = std::function<Script(const GenerationRequest& request, int choice)>;

  explicit ScriptedEngine(Writer writer = {}, int context = 4096)
      : writer_(std::move(writer)), context_length_(context) {}
  ~ScriptedEngine() override { stop(); }

  void set_writer(Writer writer) {
    const std::lock_guard lock(mutex_);
    writer_ = std::move(writer);
  }

  // Steps on a thread of its own, so long apart, until stop().
  void run(std::chrono::microseconds pause) {
    running_ = true;
    thread_ = std::thread([this, pause] {
      while (running_) {
        step();
        std::this_thread::sleep_for(pause);
      }
    });
  }
  void stop() {
    running_ = false;
    if (thread_.joinable()) thread_.join();
    cancel_all();
    while (step()) {
    }
  }

  // One step of every generation; false when there was none.
  bool step() {
    std::vector<std::pair<GenerationHandler, std::vector<GenerationEvent>>> calls;
    {
      const std::lock_guard lock(mutex_);
      ++steps_;
      for (auto entry = live_.begin(); entry != live_.end();) {
        std::vector<GenerationEvent> events;
        const bool over = advance(entry->second, events);
        calls.emplace_back(entry->second.handler, std::move(events));
        entry = over ? live_.erase(entry) : std::next(entry);
      }
    }
    for (auto& [handler, events] : calls) {
      for (GenerationEvent& event : events) handler(std::move(event));
    }
    return !calls.empty();
  }

  // The requests that were accepted.
  std::vector<GenerationRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  int live() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(live_.size());
  }
  std::int64_t steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  // Steps that had passed when generation `id` ended; -1 while it has not.
  std::int64_t ended_at(int id) const {
    const std::lock_guard lock(mutex_);
    const auto found = ended_.find(id);
    return found == ended_.end() ? -1 : found->second;
  }
  int next_id() const {
    const std::lock_guard lock(mutex_);
    return next_id_;
  }

  std::optional<Refusal> refuse_next;  // answers the next submit()
  std::optional<Error> failed;

  int context_length() const override { return context_length_; }

  std::variant<GenerationId, Refusal> submit(GenerationRequest request,
                                             GenerationHandler handler) override {
    const std::lock_guard lock(mutex_);
    if (refuse_next) return *std::exchange(refuse_next, std::nullopt);
    if (draining_) return Refusal{Refusal::Kind::draining, "", "the engine is draining"};
    const GenerationId id(next_id_++);
    Live live;
    live.id = id;
    live.handler = std::move(handler);
    for (int i = 0; i < request.choices; ++i) {
      Script script = writer_ ? writer_(request, i) : Script{};
      live.prompt_steps = std::max(live.prompt_steps, script.prompt_steps);
      live.choices.push_back({std::move(script), 0, false, false});
    }
    live.request = request;
    requests_.push_back(std::move(request));
    live_.emplace(id.value, std::move(live));
    return id;
  }
  void cancel(GenerationId id) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(id.value);
    if (found != live_.end()) found->second.cancelled = true;
  }
  void stop_choice(GenerationId id, int choice, int output_tokens) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(id.value);
    if (found == live_.end()) return;
    Choice& target = found->second.choices[static_cast<std::size_t>(choice)];
    target.stopped = true;
    target.counted = output_tokens;
  }
  int flush_cache() override { return 3; }
  void drain() override {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  bool idle() const override { return live() == 0; }
  std::optional<Error> failure() const override { return failed; }
  EngineState state() const override {
    const std::lock_guard lock(mutex_);
    EngineState state;
    state.running = static_cast<int>(live_.size());
    return state;
  }

 private:
  struct Choice {
    Script script;
    int given = 0;
    bool stopped = false;
    bool over = false;
    int counted = -1;
  };
  struct Live {
    GenerationId id;
    GenerationRequest request;
    GenerationHandler handler;
    std::vector<Choice> choices;
    int prompt_steps = 1;
    int prompt_step = 0;
    int completion_tokens = 0;
    bool cancelled = false;
  };

  void cancel_all() {
    const std::lock_guard lock(mutex_);
    for (auto& [id, live] : live_) live.cancelled = true;
  }

  static TokenLogprobs logprobs_of(TokenId token, int top) {
    TokenLogprobs scores{-0.25, {}};
    for (int i = 0; i < top; ++i) {
      scores.top.push_back({token + static_cast<TokenId>(i), -0.25 - i});
    }
    return scores;
  }

  bool advance(Live& live, std::vector<GenerationEvent>& events) {
    const int prompt = static_cast<int>(live.request.prompt.size());
    if (live.cancelled) {
      for (std::size_t i = 0; i < live.choices.size(); ++i) {
        if (!live.choices[i].over) end(live, i, FinishReason::cancelled, events);
      }
    } else if (live.prompt_step < live.prompt_steps) {
      ++live.prompt_step;
      events.emplace_back(PromptProgress{prompt * live.prompt_step / live.prompt_steps, prompt});
      if (live.prompt_step == live.prompt_steps) {
        PromptEvaluated evaluated;
        evaluated.cached_tokens = 0;
        for (int i = 0; live.request.prompt_logprobs && i < prompt; ++i) {
          evaluated.logprobs.emplace_back();
          if (i > 0) {
            evaluated.logprobs.back() =
                logprobs_of(live.request.prompt[static_cast<std::size_t>(i)],
                            live.request.top_logprobs.value_or(0));
          }
        }
        events.emplace_back(std::move(evaluated));
      }
      return false;
    } else {
      for (std::size_t i = 0; i < live.choices.size(); ++i) speak(live, i, events);
    }
    const bool over = std::all_of(live.choices.begin(), live.choices.end(),
                                  [](const Choice& choice) { return choice.over; });
    if (over) {
      GenerationFinished finished;
      finished.prompt_tokens = prompt;
      finished.completion_tokens = live.completion_tokens;
      events.emplace_back(finished);
      ended_[live.id.value] = steps_;
    }
    return over;
  }

  void speak(Live& live, std::size_t index, std::vector<GenerationEvent>& events) {
    Choice& choice = live.choices[index];
    if (choice.over) return;
    if (choice.stopped) return end(live, index, FinishReason::stop, events);
    if (choice.script.error_after == choice.given) {
      return end(live, index, FinishReason::error, events);
    }
    const auto position = static_cast<std::size_t>(choice.given);
    const std::vector<TokenId>& tokens = choice.script.tokens;
    if (position >= tokens.size() && (choice.script.ends || tokens.empty())) {
      return end(live, index, FinishReason::stop, events);
    }
    OutputToken token;
    token.choice = static_cast<int>(index);
    token.token = tokens[position % tokens.size()];
    if (live.request.top_logprobs) {
      token.logprobs = logprobs_of(token.token, *live.request.top_logprobs);
    }
    events.emplace_back(std::move(token));
    if (++choice.given >= live.request.max_tokens) end(live, index, FinishReason::length, events);
  }

  static void end(Live& live, std::size_t index, FinishReason reason,
                  std::vector<GenerationEvent>& events) {
    Choice& choice = live.choices[index];
    choice.over = true;
    ChoiceFinished finished;
    finished.choice = static_cast<int>(index);
    finished.reason = reason;
    finished.completion_tokens = choice.counted >= 0 ? choice.counted : choice.given;
    if (reason == FinishReason::error) finished.error = Error{"logits are not finite"};
    live.completion_tokens += finished.completion_tokens;
    events.emplace_back(std::move(finished));
  }

  mutable std::mutex mutex_;
  Writer writer_;
  int context_length_;
  std::map<int, Live> live_;
  std::map<int, std::int64_t> ended_;
  std::vector<GenerationRequest> requests_;
  std::int64_t steps_ = 0;
  int next_id_ = 0;
  bool draining_ = false;
  std::atomic<bool> running_{false};
  std::thread thread_;
};

}  // namespace replayssm::server
