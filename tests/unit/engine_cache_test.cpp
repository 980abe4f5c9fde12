// What is reused, what it costs, and why not more.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "cached_engine.h"
#include "slow_device.h"

namespace replayssm {
namespace {

TEST(EngineCache, ARepeatedPromptIsReusedUpToItsLastToken) {
  for (const int tokens : {2, 15, 16, 17, 32, 33, 100}) {
    CachedEngine serving(cached_options());
    const auto prompt = random_prompt(*serving.engine, tokens, 1);
    const Finished first = serving.ask(prompt);
    const Finished second = serving.ask(prompt);
    EXPECT_EQ(first.reused_tokens, 0);
    EXPECT_EQ(second.reused_tokens, tokens - 1);
    EXPECT_EQ(second.output, first.output);
    EXPECT_EQ(second.generation->lost_tokens, 0);
  }
}

TEST(EngineCache, ASecondTurnReusesThePromptAndTheAnswerOfTheFirst) {
  for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
    for (const int tokens : {1, 20, 47, 64}) {
      EngineOptions options = cached_options();
      options.recurrence = recurrence;
      CachedEngine serving(options);
      const auto prompt = random_prompt(*serving.engine, tokens, 1);
      const Finished first = serving.ask(prompt, 13);
      const auto next = joined(joined(prompt, first.output), {3, 1, 4});
      EXPECT_EQ(serving.ask(next).reused_tokens, tokens + 13 - 1);
    }
  }
}

TEST(EngineCache, BranchPointsAreReusedExactlyByWhatPartsThere) {
  CachedEngine serving(cached_options());
  const auto system = random_prompt(*serving.engine, 77, 1);
  serving.ask(joined(system, {1, 2, 3, 4, 5}), 20, {77});
  const Finished other = serving.ask(joined(system, {9, 8, 7}), 20, {77});
  EXPECT_EQ(other.reused_tokens, 77);
}

TEST(EngineCache, WhereTwoPromptsPartedAThirdResumes) {
  CachedEngine serving(cached_options(), 256);
  const auto shared = random_prompt(*serving.engine, 100, 1);
  serving.ask(joined(shared, random_prompt(*serving.engine, 40, 2)));
  const Finished second = serving.ask(joined(shared, random_prompt(*serving.engine, 40, 3)));
  EXPECT_EQ(second.reused_tokens, 0);
  EXPECT_EQ(second.generation->lost_tokens, 100);
  EXPECT_EQ(second.generation->lost_reason, PrefixLoss::no_state);
  const Finished third = serving.ask(joined(shared, random_prompt(*serving.engine, 40, 4)));
  EXPECT_EQ(third.reused_tokens, 100);
}

TEST(EngineCache, CheckpointsLieNoFurtherApartThanTheIntervalAlongPromptAndOutput) {
  for (const int interval : {16, 48, 64}) {
    EngineOptions options = cached_options();
    options.kept_sequences_least = 40;
    CachedEngine serving(options, interval);
    const auto prompt = random_prompt(*serving.engine, 150, 1);
    const Finished whole = serving.ask(prompt, 90);
    std::set<int> depths = {0};
    for (const auto& entry : serving.cache.entries()) {
      depths.insert(entry.cursor.checkpoint.tokens);
      depths.insert(entry.cursor.committed.tokens);
    }
    int last = 0;
    for (const int depth : depths) {
      EXPECT_LE(depth - last, interval) << "interval " << interval;
      last = depth;
    }
    EXPECT_EQ(last, 150 + 90 - 1);
  }
}

TEST(EngineCache, AMatchThatEndsInsideRecordsSaysSo) {
  CachedEngine serving(cached_options(), 256);
  const auto prompt = random_prompt(*serving.engine, 60, 1);  // c = 48 at its end
  serving.ask(prompt, 1);
  auto parted = prompt;
  parted.resize(55);
  const Finished second = serving.ask(joined(parted, {1, 2, 3}));
  EXPECT_EQ(second.reused_tokens, 48);
  EXPECT_EQ(second.generation->lost_tokens, 7);
  EXPECT_EQ(second.generation->lost_reason, PrefixLoss::tail);
}

TEST(EngineCache, WhatWasEvictedSaysSoAndIsReusedFromTheHostWhereThereIsOne) {
  for (const std::int64_t host_bytes : {std::int64_t{0}, std::int64_t{1} << 26}) {
    EngineOptions options = cached_options();
    CachedEngine serving(options, 256, host_bytes);
    const auto prompt = random_prompt(*serving.engine, 60, 1);
    const Finished first = serving.ask(prompt);
    for (unsigned i = 0; i < 12; ++i) serving.ask(random_prompt(*serving.engine, 40, 100 + i));
    const auto next = joined(joined(prompt, first.output), {1, 2, 3});
    const Finished second = serving.ask(next);
    EXPECT_EQ(second.output, solo(options, next, 20));
    if (host_bytes > 0) {
      EXPECT_EQ(second.reused_tokens, 79);
      EXPECT_GT(serving.cache.host_restores(), 0);
    } else {
      EXPECT_EQ(second.reused_tokens, 0);
      EXPECT_EQ(second.generation->lost_tokens, 79);
      EXPECT_EQ(second.generation->lost_reason, PrefixLoss::evicted);
    }
  }
}

// Slots and pages are all in use then, so that nothing comes back before something else has gone.
TEST(EngineCache, WhatWentToTheHostComesBackWhileThePoolsAreFull) {
  EngineOptions options = cached_options(2);
  options.max_running_requests = 2;
  CachedEngine serving(options, 32, std::int64_t{1} << 26);
  for (unsigned i = 0; i < 10; ++i) serving.ask(serving.prompt(150, i), 4);
  ASSERT_GT(serving.cache.evictions(), 0);
  for (unsigned i = 0; i < 4; ++i) {
    const auto prompt = serving.prompt(150, i);
    const Finished again = serving.ask(prompt, 4);
    EXPECT_EQ(again.reused_tokens, 144) << "the prompt's end gave its row to the answer's";
    EXPECT_EQ(again.output, solo(options, prompt, 4));
  }
  EXPECT_GE(serving.cache.host_restores(), 4);
  serving.expect_nothing_held();
}

// Rows are all in use then: running ones, and as many in the cache as it may hold.
TEST(EngineCache, AnEndOfAPromptTakesTheRowOfWhatIsSuperseded) {
  CachedEngine serving(cached_options(8));
  for (unsigned chat = 0; chat < 4; ++chat) serving.ask(serving.prompt(40, chat), 9);
  ASSERT_EQ(serving.cache.rows_held(), 8);
  for (unsigned i = 0; i < 4; ++i) {
    ASSERT_TRUE(serving.scheduler->submit({serving.prompt(30, 10 + i), greedy(), 40, true}).ok());
  }
  for (int step = 0; step < 6; ++step) ASSERT_TRUE(serving.scheduler->step().ok());
  ASSERT_EQ(serving.engine->memory().rows().free(), 0);
  EXPECT_EQ(serving.scheduler->counters().publications_skipped, 0);
  EXPECT_EQ(serving.cache.demotions(), 4);
  EXPECT_EQ(serving.cache.evictions(), 0);
  run_all(*serving.scheduler);
  serving.expect_nothing_held();
}

TEST(EngineCache, OfEvictedSequencesSoManyTokensAreRemembered) {
  const auto engine = make_engine(cached_options());
  PrefixCache cache(engine->memory(), engine->ops(), {6, 0, 100});
  SchedulerOptions scheduling;
  scheduling.cache = &cache;
  Scheduler scheduler(*engine, scheduling);
  for (const unsigned seed : {1u, 2u}) {
    ASSERT_TRUE(scheduler.submit({random_prompt(*engine, 60, seed), greedy(), 1, true}).ok());
    run_all(scheduler);
  }
  while (cache.evict_one()) {
  }
  EXPECT_EQ(cache.find(random_prompt(*engine, 60, 1), 59).reason, std::nullopt);
  EXPECT_EQ(cache.find(random_prompt(*engine, 60, 2), 59).reason, PrefixLoss::evicted);
}

TEST(EngineCache, EightForksOfAPromptUseOneBaseSlotUntilTheirFirstFold) {
  EngineOptions options = cached_options();
  options.max_running_requests = 8;
  options.step_tokens = 64;
  CachedEngine serving(options, 256);
  GenerationRequest request{random_prompt(*serving.engine, 34, 1), greedy(), 40, true};
  request.sampling.temperature = 1;
  request.choices = 8;
  ASSERT_TRUE(serving.scheduler->submit(std::move(request)).ok());
  std::set<int> before, after;
  while (!serving.scheduler->idle()) {
    ASSERT_TRUE(serving.scheduler->step().ok());
    const EngineState state = serving.scheduler->state();
    if (state.running < 8) continue;
    std::set<int> bases;
    bool folded = false;
    for (const SequenceState& sequence : state.sequences) {
      bases.insert(sequence.base.value);
      folded = folded || sequence.checkpoint > 32;
    }
    (folded ? after : before).insert(static_cast<int>(bases.size()));
  }
  EXPECT_EQ(before, std::set<int>{1});
  EXPECT_EQ(*after.rbegin(), 8);
}

// The states of used slots; poison, where nothing was written yet, left out.
std::vector<std::string_view> stored_states(Engine& engine) {
  const StateView& view = engine.memory().views().states.front();
  const std::size_t stride = view.slot_stride * size_of(view.type);
  const std::size_t bytes = engine.config().linear.state_elements() * size_of(view.type);
  const std::string poison(bytes, static_cast<char>(kPoisonByte));
  std::vector<std::string_view> states;
  for (int slot = 0; slot < engine.memory().slots().slots(); ++slot) {
    if (engine.memory().slots().references(SlotId{slot}) == 0) continue;
    const std::string_view state(
        static_cast<const char*>(view.data) + static_cast<std::size_t>(slot) * stride, bytes);
    if (state != poison) states.push_back(state);
  }
  return states;
}

// Requests that have nothing in common but what they share by reference: forks of a prompt, its
// entries in the cache, second turns. The first block that a fork folds has tokens of its own.
TEST(EngineCache, NoTwoSlotsHoldTheSameState) {
  for (const char* model : kModelKinds) {
    EngineOptions options = cached_options(12);
    options.model_path = small_checkpoint(model);
    CachedEngine serving(options, 32);
    std::size_t most = 0;
    for (int turn = 0; turn < 3; ++turn) {
      GenerationRequest forks{serving.prompt(40 + 18 * turn, 1), greedy(), 40, true};
      forks.sampling.temperature = 20;  // so that they part at once
      forks.sampling.seed = static_cast<std::uint64_t>(10 * turn);
      forks.choices = 3;
      GenerationRequest alone{serving.prompt(30 + 30 * turn, 2), greedy(), 25, true};
      alone.branch_points = {20};
      ASSERT_TRUE(serving.scheduler->submit(std::move(forks)).ok());
      ASSERT_TRUE(serving.scheduler->submit(std::move(alone)).ok());
      while (!serving.scheduler->idle()) {
        ASSERT_TRUE(serving.scheduler->step().ok());
        std::vector<std::string_view> states = stored_states(*serving.engine);
        most = std::max(most, states.size());
        std::sort(states.begin(), states.end());
        ASSERT_EQ(std::adjacent_find(states.begin(), states.end()), states.end()) << model;
      }
    }
    EXPECT_GT(most, 8u);
  }
}

// Each turn leaves two sequences with records, so that without giving up those which later turns
// have superseded, four chats would fill eight rows.
TEST(EngineCache, SevenInterleavedChatsGoOnFromTheirLastAnswerWithEightRows) {
  CachedEngine serving(cached_options(8));
  ASSERT_EQ(serving.engine->plan().kept_rows, 8);
  std::vector<std::vector<TokenId>> chats;
  for (unsigned chat = 0; chat < 7; ++chat) chats.push_back(serving.prompt(33, chat));
  for (int turn = 0; turn < 4; ++turn) {
    for (std::vector<TokenId>& chat : chats) {
      const Finished answer = serving.ask(chat, 9);
      if (turn > 0) {
        EXPECT_EQ(answer.reused_tokens, static_cast<int>(chat.size()) - 4) << "turn " << turn;
      }
      chat = joined(joined(std::move(chat), answer.output), {1, 2, 3});
    }
  }
  EXPECT_GT(serving.cache.demotions(), 0);
}

TEST(EngineCache, WhatGaveUpItsRowStillServesItsCheckpoint) {
  CachedEngine serving(cached_options(4), 256);
  const auto prompt = serving.prompt(60, 1);  // c = 48 at its end
  serving.ask(prompt, 9);
  for (unsigned i = 0; i < 3; ++i) serving.ask(serving.prompt(10, 10 + i), 1);
  ASSERT_EQ(serving.cache.demotions(), 1);
  const Finished again = serving.ask(prompt, 9);
  EXPECT_EQ(again.reused_tokens, 48);
  EXPECT_EQ(again.generation->lost_tokens, 11);
  EXPECT_EQ(again.generation->lost_reason, PrefixLoss::no_state);
}

TEST(EngineCache, WhatIsUsedOrPartsKeepsItsRow) {
  for (const bool parts : {false, true}) {
    CachedEngine serving(cached_options(4), 256);
    GenerationRequest request{serving.prompt(60, 1), greedy(), 9, true};
    if (parts) {  // two answers go on from the end of the prompt
      request.choices = 2;
      request.sampling.temperature = 20;
      ASSERT_TRUE(serving.scheduler->submit(request).ok());
      run_all(*serving.scheduler);
      ASSERT_EQ(serving.cache.rows_held(), 3);
    } else {  // one does, and then the prompt is asked again
      serving.ask(request.prompt, 9);
      serving.ask(request.prompt, 9);
      ASSERT_EQ(serving.cache.rows_held(), 2);
    }
    // Rows are missing now: what is oldest goes, and that is no superseded one.
    for (int i = serving.cache.rows_held(); i <= 4; ++i) {
      serving.ask(serving.prompt(10, 10 + static_cast<unsigned>(i)), 1);
    }
    EXPECT_EQ(serving.cache.demotions(), 0) << parts;
    EXPECT_EQ(serving.cache.evictions(), 1) << parts;
  }
}

TEST(EngineCache, ACheckpointIsReplacedByAWholeSequenceOfItsTokens) {
  CachedEngine serving(cached_options(), 32);
  const auto prompt = serving.prompt(100, 1);
  serving.ask(prompt, 1);
  const auto part = first_tokens(prompt, 32);
  const auto known = serving.cache.entries();
  ASSERT_TRUE(std::any_of(known.begin(), known.end(), [](const auto& entry) {
    return !entry.with_records && entry.cursor.checkpoint.tokens == 32;
  }));
  serving.ask(part, 1);
  std::vector<bool> with_records;
  for (const auto& entry : serving.cache.entries()) {
    if (entry.cursor.committed.tokens == 32) with_records.push_back(entry.with_records);
  }
  EXPECT_EQ(with_records, std::vector<bool>{true});
}

TEST(EngineCache, ACheckpointFromTheHostHoldsNoRow) {
  EngineOptions options = cached_options();
  CachedEngine serving(options, 32, 1 << 26);
  const auto prompt = serving.prompt(100, 1);
  serving.ask(prompt, 1);
  while (serving.cache.evict_one()) {
  }
  ASSERT_EQ(serving.engine->memory().rows().used(), 0);
  const Finished answer = serving.ask(joined(first_tokens(prompt, 70), serving.prompt(9, 2)), 1);
  EXPECT_EQ(answer.reused_tokens, 64);
  EXPECT_GT(serving.cache.host_restores(), 0);
  EXPECT_EQ(serving.engine->memory().rows().used(), serving.cache.rows_held());
}

// Publications along the way, forks, evictions to the host and returns: on a device, a step waits
// for nothing but its tokens.
TEST(EngineCache, WhatTheCacheIsGivenMakesNobodyWaitForTheDevice) {
  EngineOptions options = cached_options(3);
  options.poison = Poison::off;
  const auto engine = make_engine(options, make_slow_device);
  auto& space = dynamic_cast<SlowTransfers&>(engine->memory().space());
  PrefixCache cache(engine->memory(), engine->ops(), {engine->plan().kept_rows, 1 << 22});
  SchedulerOptions scheduling;
  scheduling.cache = &cache;
  scheduling.track_interval = 16;
  scheduling.overlap = Overlap::always;
  Scheduler scheduler(*engine, scheduling);
  const std::int64_t before = space.waits();
  for (int round = 0; round < 2; ++round) {
    for (unsigned i = 0; i < 6; ++i) {
      GenerationRequest request{random_prompt(*engine, 40, i / 2), greedy(), 60, true};
      request.branch_points = {20};
      request.choices = i == 3 ? 3 : 1;
      ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
    }
    while (!scheduler.idle()) {
      ASSERT_TRUE(scheduler.step().ok());
      space.progress();
    }
  }
  EXPECT_EQ(space.waits(), before);
  EXPECT_GT(scheduler.counters().checkpoints_running, 20);
  EXPECT_GT(cache.host_restores(), 0);
  cache.clear();
  expect_all_free(*engine);
}

TEST(EngineCache, LogProbabilitiesOfThePromptAreThoseOfAColdEngineAndReuseNothing) {
  EngineOptions options = cached_options();
  CachedEngine serving(options);
  const auto prompt = random_prompt(*serving.engine, 70, 1);
  const auto logprobs = [&] {
    GenerationRequest request{prompt, greedy(), 1, true};
    request.top_logprobs = 2;
    request.prompt_logprobs = true;
    EXPECT_TRUE(serving.scheduler->submit(std::move(request)).ok());
    PromptEvaluated evaluated;
    while (!serving.scheduler->idle()) {
      auto events = serving.scheduler->step();
      EXPECT_TRUE(events.ok());
      for (auto& event : events->prompts) evaluated = std::move(event.event);
    }
    return evaluated;
  };
  const PromptEvaluated cold = logprobs();
  const PromptEvaluated warm = logprobs();
  ASSERT_EQ(cold.logprobs.size(), 70u);
  EXPECT_FALSE(cold.logprobs.front().has_value());
  EXPECT_EQ(warm.cached_tokens, 0);
  EXPECT_EQ(warm.lost_reason, PrefixLoss::prompt_logprobs);
  for (std::size_t i = 1; i < 70; ++i) {
    ASSERT_TRUE(cold.logprobs[i].has_value());
    EXPECT_EQ(cold.logprobs[i]->logprob, warm.logprobs[i]->logprob);
    EXPECT_LE(cold.logprobs[i]->logprob, cold.logprobs[i]->top.front().logprob);
    EXPECT_EQ(cold.logprobs[i]->top.size(), 2u);
  }
}

// An entry that gives up its row leaves its checkpoint; here that is where another one is kept.
TEST(EngineCache, ASequenceIsKeptWhereAnotherLeavesItsCheckpoint) {
  const auto engine = make_engine(cached_options(6));
  PrefixCache cache(engine->memory(), engine->ops(), {4, 0});  // fewer rows than memory has
  SchedulerOptions scheduling;
  scheduling.cache = &cache;
  Scheduler scheduler(*engine, scheduling);
  const auto ask = [&](const std::vector<TokenId>& prompt, int tokens, bool prompt_logprobs) {
    GenerationRequest request{prompt, greedy(), tokens, true};
    if (prompt_logprobs) request.top_logprobs = 0;
    request.prompt_logprobs = prompt_logprobs;
    EXPECT_TRUE(scheduler.submit(std::move(request)).ok());
    return run_all(scheduler).front().output;
  };
  // Two chats of two turns. Each leaves entries at 32 (its checkpoint at 16), 40 (at 32) and 46.
  for (const unsigned seed : {1u, 2u}) {
    const auto prompt = random_prompt(*engine, 32, seed);
    const auto turn = joined(prompt, ask(prompt, 9, false));
    ask(joined(turn, random_prompt(*engine, 5, 3)), 1, false);
  }
  // The second chat's prompt, evaluated as a whole, is kept at 31 and at 32: the first takes the
  // row of 32, the other that of 40, which leaves its checkpoint at 32.
  const auto prompt = random_prompt(*engine, 32, 2);
  const auto places = [&] {
    std::multiset<int> tokens;
    for (const auto& entry : cache.entries()) tokens.insert(entry.cursor.committed.tokens);
    return tokens;
  };
  ASSERT_EQ(places(), (std::multiset<int>{16, 32, 32, 40, 46, 46}));
  ask(prompt, 1, true);
  EXPECT_EQ(places(), (std::multiset<int>{16, 16, 31, 32, 32, 46, 46}));
}

}  // namespace
}  // namespace replayssm
