// Who waits for the events of generations that an EngineService runs.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "engine/engine_service.h"

namespace replayssm {

// One generation's events, from the engine's thread to the test's.
class Listener {
 public:
  // `also` is called first, on the engine's thread.
  static std::shared_ptr<Listener> make(std::function<void(const GenerationEvent&)> also = {}) {
    auto listener = std::make_shared<Listener>();
    listener->also_ = std::move(also);
    listener->events_.reserve(256);  // so that few of them need memory when they come
    return listener;
  }
  static GenerationHandler handler(std::shared_ptr<Listener> listener) {
    return [listener](GenerationEvent event) {
      if (listener->also_) listener->also_(event);
      const std::lock_guard lock(listener->mutex_);
      listener->events_.push_back(std::move(event));
      listener->changed_.notify_all();
    };
  }

  // False when the end does not come within a minute.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return ended(); });
  }
  // Until so many output tokens have come, or the end.
  void wait_for_tokens(int tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] {
      int heard = 0;
      for (const auto& event : events_) heard += std::holds_alternative<OutputToken>(event) ? 1 : 0;
      return heard >= tokens || ended();
    });
  }
  std::vector<GenerationEvent> events() {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  // After wait(): the output of a choice, and how it ended.
  std::vector<TokenId> output(int choice = 0) {
    std::vector<TokenId> tokens;
    for (const GenerationEvent& event : events()) {
      const auto* token = std::get_if<OutputToken>(&event);
      if (token != nullptr && token->choice == choice) tokens.push_back(token->token);
    }
    return tokens;
  }
  ChoiceFinished end(int choice = 0) {
    for (const GenerationEvent& event : events()) {
      const auto* finished = std::get_if<ChoiceFinished>(&event);
      if (finished != nullptr && finished->choice == choice) return *finished;
    }
    ADD_FAILURE() << "choice " << choice << " did not end";
    return {};
  }
  GenerationFinished finished() {
    const auto all = events();
    if (all.empty() || !std::holds_alternative<GenerationFinished>(all.back())) {
      ADD_FAILURE() << "the generation did not end";
      return {};
    }
    return std::get<GenerationFinished>(all.back());
  }

 private:
  bool ended() const {
    return !events_.empty() && std::holds_alternative<GenerationFinished>(events_.back());
  }

  std::function<void(const GenerationEvent&)> also_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GenerationEvent> events_;
};

// The order that engine/generation.h promises, for a generation that is over.
inline void expect_documented_order(const std::vector<GenerationEvent>& events, int choices) {
  ASSERT_FALSE(events.empty());
  bool evaluated = false;
  int evaluated_so_far = 0;
  std::map<int, bool> ended;
  int completion = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const GenerationEvent& event = events[i];
    if (const auto* progress = std::get_if<PromptProgress>(&event)) {
      EXPECT_FALSE(evaluated);
      EXPECT_LE(progress->evaluated, progress->prompt_tokens);
      evaluated_so_far = progress->evaluated;
    } else if (std::holds_alternative<PromptEvaluated>(event)) {
      EXPECT_FALSE(evaluated) << "once";
      EXPECT_GT(evaluated_so_far, 0);
      evaluated = true;
    } else if (const auto* token = std::get_if<OutputToken>(&event)) {
      EXPECT_TRUE(evaluated);
      EXPECT_FALSE(ended[token->choice]);
    } else if (const auto* end = std::get_if<ChoiceFinished>(&event)) {
      EXPECT_FALSE(ended[end->choice]) << "once a choice";
      EXPECT_EQ(end->error.has_value(), end->reason == FinishReason::error);
      ended[end->choice] = true;
      completion += end->completion_tokens;
    } else {
      EXPECT_EQ(i + 1, events.size()) << "the last event, once";
      EXPECT_EQ(std::get<GenerationFinished>(event).completion_tokens, completion);
    }
  }
  EXPECT_TRUE(std::holds_alternative<GenerationFinished>(events.back()));
  EXPECT_EQ(static_cast<int>(ended.size()), choices);
}

// With nothing running and the cache given up, nothing is held.
inline void expect_start_values(EngineService& service) {
  service.flush_cache();
  const EngineState state = service.state();
  EXPECT_TRUE(service.idle());
  EXPECT_EQ(state.running, 0);
  EXPECT_EQ(state.waiting, 0);
  EXPECT_EQ(state.paused, 0);
  EXPECT_TRUE(state.sequences.empty());
  EXPECT_TRUE(state.cache_entries.empty());
  EXPECT_EQ(state.rows.used, 0);
  EXPECT_EQ(state.slots.used, 0);
  EXPECT_EQ(state.slots_reserved, 0);
  EXPECT_EQ(state.pages.used, 0);
  EXPECT_EQ(state.host_cache_bytes, 0);
}

}  // namespace replayssm
