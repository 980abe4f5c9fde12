// What a request asks for holds whatever the scheduler does with it: forks, pauses, batch mates.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "cached_engine.h"
#include "drafters.h"
#include "grammar/grammar.h"

namespace replayssm {
namespace {

constexpr TokenId kEnd = 510;  // the small model's end token

// Runs everything; after so many steps a request of higher priority comes, which takes every row.
std::vector<Finished> run_with_pauses(CachedEngine& cached, std::vector<int> at) {
  std::vector<Finished> all;
  for (int step = 0; !cached.scheduler->idle(); ++step) {
    if (std::find(at.begin(), at.end(), step) != at.end()) {
      GenerationRequest urgent{cached.prompt(20, 77), greedy(), 3, true};
      urgent.priority = 9;
      urgent.choices = cached.engine->plan().rows;
      EXPECT_TRUE(cached.scheduler->submit(std::move(urgent)).ok());
    }
    auto events = cached.scheduler->step();
    if (!events.ok()) {
      ADD_FAILURE() << events.error().message;
      break;
    }
    for (Finished& finished : events->finished) {
      if (finished.prompt_tokens != 20) all.push_back(std::move(finished));
    }
  }
  return all;
}

TEST(EngineRequest, NoEndTokenComesBeforeMinTokensAlsoAfterAPause) {
  for (const bool pauses : {false, true}) {
    for (const int min_tokens : {0, 1, 5, 12}) {
      CachedEngine cached(cached_options(), 16, 0, SchedulePolicy::priority);
      GenerationRequest request{cached.prompt(30, 1), greedy(), 40, false};
      request.stop_token_ids = {7};
      request.logit_bias = {{kEnd, 200.0F}, {7, 150.0F}};
      request.min_tokens = min_tokens;
      request.choices = 2;
      ASSERT_TRUE(cached.scheduler->submit(request).ok());
      const auto finished = pauses ? run_with_pauses(cached, {3, 6}) : run_all(*cached.scheduler);
      ASSERT_EQ(finished.size(), 2u);
      for (const Finished& each : finished) {
        EXPECT_EQ(each.reason, FinishReason::stop);
        EXPECT_EQ(each.stop_token, kEnd);
        EXPECT_EQ(static_cast<int>(each.output.size()), min_tokens);
      }
      if (!pauses || min_tokens <= 5) continue;
      EXPECT_GT(cached.scheduler->counters().preemptions, 0);
    }
  }
}

TEST(EngineRequest, EndsAtAStopTokenIdAlsoWhereEndTokensAreIgnored) {
  CachedEngine cached(cached_options());
  GenerationRequest request{cached.prompt(30, 1), greedy(), 40, true};
  request.stop_token_ids = {7};
  request.logit_bias = {{kEnd, 200.0F}};
  ASSERT_TRUE(cached.scheduler->submit(request).ok());
  EXPECT_EQ(run_all(*cached.scheduler).front().output, std::vector<TokenId>(40, kEnd));
  request.logit_bias = {{7, 200.0F}};
  ASSERT_TRUE(cached.scheduler->submit(request).ok());
  const auto finished = run_all(*cached.scheduler);
  EXPECT_EQ(finished.front().stop_token, 7);
  EXPECT_TRUE(finished.front().output.empty());
  EXPECT_EQ(finished.front().generation->completion_tokens, 1);
}

// `tokens`: their texts by id, of so many ids; those beyond have none.
std::shared_ptr<const grammar::ReasoningGate> gate_of(const char* schema,
                                                      std::vector<std::string> tokens,
                                                      std::vector<TokenId> end_tokens = {kEnd},
                                                      std::size_t vocabulary = 512) {
  tokens.resize(vocabulary);
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const auto trie = std::make_shared<const grammar::TokenTrie>(views, end_tokens);
  const auto grammar = grammar::Grammar::from_schema(nlohmann::ordered_json::parse(schema));
  return std::make_shared<const grammar::ReasoningGate>(
      std::make_shared<grammar::ConstrainedTokens>(grammar.value(), trie),
      grammar::ReasoningGate::Start::in_answer, grammar::ReasoningGate::Tag{});
}

std::vector<std::string> bytes() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  return tokens;
}

std::shared_ptr<const grammar::ReasoningGate> object_with_two_members(
    std::vector<TokenId> end_tokens = {kEnd}, std::size_t vocabulary = 512) {
  return gate_of(R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 6},
          "n": {"type": "integer", "minimum": 0, "maximum": 999}}, "required": ["name", "n"]})",
                 bytes(), std::move(end_tokens), vocabulary);
}

// Every string of eight a and z is a token, and each leads to a state of its own.
TEST(EngineRequest, ATooCostlyConstraintEndsItsOwnRequest) {
  std::vector<std::string> tokens = bytes();
  for (unsigned bits = 0; bits < 250; ++bits) {
    std::string text;
    for (unsigned i = 0; i < 8; ++i) text += (bits >> i & 1u) != 0 ? 'a' : 'z';
    tokens.push_back(text);
  }
  EngineOptions options = cached_options();
  options.max_running_requests = 2;
  CachedEngine cached(options, 16, 0, SchedulePolicy::priority);
  GenerationRequest request{cached.prompt(30, 1), {}, 90, true};
  request.sampling.temperature = 30;  // whatever the grammar allows
  ASSERT_TRUE(cached.scheduler->submit(request).ok());
  request.constraint = gate_of(R"({"pattern": "^(.*[a-m].{300})*x$"})", tokens);
  ASSERT_TRUE(cached.scheduler->submit(request).ok());
  int failed = 0;
  for (const Finished& each : run_all(*cached.scheduler)) {
    if (each.reason != FinishReason::error) {
      EXPECT_EQ(each.output.size(), 90u);
      continue;
    }
    ++failed;
    EXPECT_NE(each.error->message.find("schema: it is too costly"), std::string::npos)
        << each.error->message;
    EXPECT_LT(each.output.size(), 90u);
  }
  EXPECT_EQ(failed, 1);
}

TEST(EngineRequest, EveryChoiceHasItsOwnConstraintAlsoAfterAPause) {
  const auto gate = object_with_two_members();
  for (const bool pauses : {false, true}) {
    EngineOptions options = cached_options();
    options.max_running_requests = 3;
    CachedEngine cached(options, 16, 0, SchedulePolicy::priority);
    GenerationRequest request{cached.prompt(30, 1), {}, 90, false};
    request.sampling.temperature = 30;  // whatever the grammar allows
    request.constraint = gate;
    request.choices = 3;
    ASSERT_TRUE(cached.scheduler->submit(request).ok());
    const auto finished = pauses ? run_with_pauses(cached, {4, 9}) : run_all(*cached.scheduler);
    ASSERT_EQ(finished.size(), 3u);
    std::set<std::vector<TokenId>> different;
    for (const Finished& each : finished) {
      ASSERT_NE(each.reason, FinishReason::error) << each.error->message;
      different.insert(each.output);
      grammar::ReasoningGate fresh = *gate;
      std::string text;
      for (const TokenId token : each.output) {
        ASSERT_TRUE(fresh.accept(token)) << text;
        text += static_cast<char>(token);
      }
      if (each.reason != FinishReason::stop) continue;
      const auto document = nlohmann::json::parse(text, nullptr, false);
      EXPECT_TRUE(document.contains("name") && document.contains("n")) << text;
    }
    EXPECT_EQ(different.size(), 3u);
  }
}

// There is no token for the end: the output ends with the document's last one, whatever drafts say.
TEST(EngineRequest, ADocumentThatIsCompleteEndsWhereTheModelHasNoEndToken) {
  EngineOptions options = cached_options();
  options.window_max = 4;
  std::vector<TokenId> text;
  for (const bool drafts : {false, true}) {
    CachedEngine cached(options);
    GenerationRequest request{cached.prompt(30, 1), {}, 200, false};
    request.sampling.temperature = 30;
    request.constraint = object_with_two_members({});
    if (drafts) {
      text.insert(text.end(), 8, '}');
      cached.engine->use_drafter(std::make_unique<ScriptedDrafter>(
          std::vector<std::vector<TokenId>>{joined(request.prompt, text)}, 3,
          [](TokenId truth, int, int) { return truth; }));
    }
    ASSERT_TRUE(cached.scheduler->submit(request).ok());
    const auto finished = run_all(*cached.scheduler);
    ASSERT_EQ(finished.size(), 1u);
    ASSERT_EQ(finished.front().reason, FinishReason::stop)
        << (finished.front().error ? finished.front().error->message : "");
    EXPECT_EQ(finished.front().stop_token, std::nullopt);
    const std::string document(finished.front().output.begin(), finished.front().output.end());
    EXPECT_TRUE(nlohmann::json::accept(document)) << document;
    EXPECT_EQ(finished.front().counters.drafts > 0, drafts);
    text = finished.front().output;
  }
}

TEST(EngineRequest, AConstraintOfALargerVocabularyIsRefused) {
  CachedEngine cached(cached_options());
  GenerationRequest request{cached.prompt(30, 1), greedy(), 20, false};
  request.constraint = object_with_two_members({kEnd}, 513);
  const auto refused = cached.scheduler->submit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "constraint: tokens: 513 is not accepted; expected at most the model's 512");
}

// Choice i says what a request of its own with seed + i says, whoever is paused.
TEST(EngineRequest, AChoiceSaysWhatItsSeedSaysAlone) {
  for (const bool pauses : {false, true}) {
    CachedEngine cached(cached_options(), 16, 1 << 24, SchedulePolicy::priority);
    GenerationRequest request{cached.prompt(30, 1), {}, 25, true};
    request.sampling.temperature = 1.2;
    request.sampling.seed = 40;
    request.sampling.repetition_penalty = 1.3;
    request.sampling.frequency_penalty = 0.5;
    request.choices = 3;
    ASSERT_TRUE(cached.scheduler->submit(request).ok());
    const auto finished = pauses ? run_with_pauses(cached, {5, 11}) : run_all(*cached.scheduler);
    ASSERT_EQ(finished.size(), 3u);
    for (const Finished& each : finished) {
      CachedEngine alone(cached_options());
      GenerationRequest one = request;
      one.choices = 1;
      one.sampling.seed = 40 + static_cast<std::uint64_t>(each.choice);
      ASSERT_TRUE(alone.scheduler->submit(one).ok());
      EXPECT_EQ(each.output, run_all(*alone.scheduler).front().output) << each.choice;
    }
  }
}

TEST(EngineRequest, RowsOfChoicesToComeAreTaken) {
  EngineOptions options = cached_options();
  options.max_running_requests = 4;
  options.step_tokens = 16;  // the prompts take several steps, and all choices but one are to come
  CachedEngine serving(options);
  for (unsigned i = 0; i < 3; ++i) {
    GenerationRequest request{serving.prompt(60, i), greedy(), 20, true};
    request.choices = 3;
    ASSERT_TRUE(serving.scheduler->submit(std::move(request)).ok());
  }
  while (!serving.scheduler->idle()) {
    ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_LE(serving.scheduler->running(), 4);
  }
  EXPECT_EQ(serving.scheduler->counters().preemptions, 0);
}

// 16 pages of 16 tokens. Before their last tokens the prompts fill 14 and a part of one, of which
// every choice has its own.
TEST(EngineRequest, ChoicesThatHaveNoPageOfTheirOwnAreRefusedAndOthersRunInTurn) {
  const EngineOptions options = with_pages(cached_options(2), 16);
  for (const bool cached : {true, false}) {
    CachedEngine serving(options, 256);
    Scheduler without(*serving.engine);
    Scheduler& scheduler = cached ? *serving.scheduler : without;
    ASSERT_EQ(serving.engine->plan().pages, 16);
    GenerationRequest request{serving.prompt(234, 1), greedy(), 22, true};
    request.sampling.temperature = 1;
    request.choices = 3;
    const auto refused = scheduler.submit(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "n: 3 is not accepted; expected at most 2: the prompt's 234 tokens fill 14 of 16 KV "
              "pages, and each choice needs one of its own");
    request.choices = 2;
    ASSERT_TRUE(scheduler.submit(request).ok());
    for (const Finished& finished : run_all(scheduler)) {
      EXPECT_EQ(finished.reason, FinishReason::length);
      EXPECT_EQ(finished.output.size(), 22u);
    }
    EXPECT_GT(scheduler.counters().preemptions, 0);
  }
}

TEST(EngineRequest, PagesThatChoicesShareArePromisedOnce) {
  EngineOptions options = cached_options();
  options.max_running_requests = 6;
  // Four choices of 11 pages share 9; two requests of 2.
  CachedEngine serving(with_pages(options, 9 + 4 * 2 + 2 * 2));
  Scheduler& scheduler = *serving.scheduler;
  GenerationRequest several{serving.prompt(160, 1), greedy(), 16, true};
  several.choices = 4;
  ASSERT_TRUE(scheduler.submit(several).ok());
  ASSERT_TRUE(scheduler.submit({serving.prompt(16, 2), greedy(), 16, true}).ok());
  ASSERT_TRUE(scheduler.step().ok());
  EXPECT_EQ(scheduler.running(), 2) << "before the choices part";
  while (scheduler.running() < 5 && !scheduler.idle()) ASSERT_TRUE(scheduler.step().ok());
  ASSERT_TRUE(scheduler.submit({serving.prompt(16, 3), greedy(), 16, true}).ok());
  ASSERT_TRUE(scheduler.step().ok());
  EXPECT_EQ(scheduler.running(), 6) << "and after";
  run_all(scheduler);
  EXPECT_EQ(scheduler.counters().preemptions, 0);
}

TEST(EngineRequest, APromptOfHigherPriorityIsEvaluatedFirst) {
  CachedEngine serving(cached_options(), 64, 0, SchedulePolicy::priority);
  ASSERT_TRUE(serving.scheduler->submit({serving.prompt(200, 1), greedy(), 2, true}).ok());
  ASSERT_TRUE(serving.scheduler->step().ok());
  GenerationRequest urgent{serving.prompt(100, 2), greedy(), 2, true};
  urgent.priority = 1;
  const auto id = serving.scheduler->submit(std::move(urgent));
  ASSERT_TRUE(id.ok());
  const auto events = serving.scheduler->step();
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->progress.size(), 1u);
  EXPECT_EQ(events->progress.front().request, *id);
  run_all(*serving.scheduler);
}

// Two of four rows cannot be had: of what runs, only one has a lower priority.
TEST(EngineRequest, NobodyIsPausedForWhatWouldStillNotFit) {
  CachedEngine serving(cached_options(), 64, 0, SchedulePolicy::priority);
  GenerationRequest first{serving.prompt(20, 1), greedy(), 40, true};
  first.priority = 5;
  ASSERT_TRUE(serving.scheduler->submit(first).ok());
  ASSERT_TRUE(serving.scheduler->submit({serving.prompt(20, 2), greedy(), 10, true}).ok());
  ASSERT_TRUE(serving.scheduler->step().ok());
  GenerationRequest large{serving.prompt(20, 3), greedy(), 5, true};
  large.priority = 3;
  large.choices = 4;
  ASSERT_TRUE(serving.scheduler->submit(large).ok());
  EXPECT_EQ(run_all(*serving.scheduler).size(), 6u);
  EXPECT_EQ(serving.scheduler->counters().preemptions, 0);
}

TEST(EngineRequest, APausedSequenceGoesOnFromWhereItStood) {
  EngineOptions options = cached_options();
  options.max_running_requests = 1;
  CachedEngine serving(options, 64, 0, SchedulePolicy::priority);
  ASSERT_TRUE(serving.scheduler->submit({serving.prompt(20, 1), greedy(), 30, true}).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(serving.scheduler->step().ok());
  GenerationRequest urgent{serving.prompt(20, 2), greedy(), 5, true};
  urgent.priority = 1;
  ASSERT_TRUE(serving.scheduler->submit(std::move(urgent)).ok());
  run_all(*serving.scheduler);
  EXPECT_EQ(serving.scheduler->counters().preemptions, 1);
  EXPECT_EQ(serving.scheduler->counters().recomputed_tokens, 0);
}

TEST(EngineRequest, WhatWasEvaluatedBeforeAPauseDoesNotCountAsCached) {
  EngineOptions options = cached_options();
  options.max_running_requests = 1;
  options.step_tokens = 16;
  options.logit_rows = 2;
  CachedEngine cached(options, 64, 0, SchedulePolicy::priority);
  const auto prompt = cached.prompt(100, 1);
  cached.ask(first_tokens(prompt, 25), 1);
  ASSERT_TRUE(cached.scheduler->submit({prompt, greedy(), 10, true}).ok());
  const auto finished = run_with_pauses(cached, {2, 5, 15});
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_GE(cached.scheduler->counters().preemptions, 2);
  EXPECT_EQ(finished[0].reused_tokens, 25);
  EXPECT_EQ(finished[0].generation->cached_tokens, 25);
  EXPECT_EQ(cached.scheduler->counters().prefix_hits, 25 + 2 * 19) << "and the other one's";
  EXPECT_EQ(finished[0].output, solo(options, prompt, 10));
}

// What a pause has lost is evaluated as a prompt is, in chunks, not token by token.
TEST(EngineRequest, APastThatWasLostIsEvaluatedInChunks) {
  EngineOptions options = cached_options();
  options.max_running_requests = 1;
  CachedEngine cached(options, 16, 0, SchedulePolicy::priority);
  const auto prompt = cached.prompt(30, 1);
  ASSERT_TRUE(cached.scheduler->submit({prompt, greedy(), 80, true}).ok());
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(cached.scheduler->step().ok());
  GenerationRequest urgent{cached.prompt(20, 2), greedy(), 2, true};
  urgent.priority = 1;
  ASSERT_TRUE(cached.scheduler->submit(urgent).ok());
  ASSERT_TRUE(cached.scheduler->step().ok());
  cached.cache.clear();
  const std::int64_t steps = cached.scheduler->counters().steps;
  const auto finished = run_all(*cached.scheduler);
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].output, solo(options, prompt, 80));
  EXPECT_GT(cached.scheduler->counters().recomputed_tokens, 80);
  // 20 tokens were still to come; the rest is what 90 tokens take in chunks.
  EXPECT_LT(cached.scheduler->counters().steps - steps, 35);
}

// Eviction is by use: what others branch off stays, however old it is.
TEST(EngineRequest, AnEntryThatIsResumedFromStays) {
  CachedEngine cached(cached_options(), 256);
  const auto shared = cached.prompt(40, 1);
  cached.ask(shared, 1);
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_EQ(cached.ask(joined(shared, cached.prompt(20, 10 + i)), 1).reused_tokens, 40) << i;
  }
}

// A step's rows of logits are counted with the choices that join in it.
TEST(EngineRequest, LogProbabilitiesOfAPromptLeaveRowsOfLogitsToChoicesThatPart) {
  EngineOptions options = cached_options();
  options.step_tokens = 128;
  options.logit_rows = 16;
  CachedEngine cached(options);
  GenerationRequest whole{cached.prompt(200, 1), greedy(), 3, true};
  whole.prompt_logprobs = true;
  ASSERT_TRUE(cached.scheduler->submit(whole).ok());
  GenerationRequest several{cached.prompt(30, 2), greedy(), 20, true};
  several.choices = 3;
  ASSERT_TRUE(cached.scheduler->submit(several).ok());
  for (const Finished& finished : run_all(*cached.scheduler)) {
    EXPECT_EQ(finished.reason, FinishReason::length);
  }
}

TEST(EngineRequest, LogProbabilitiesOfAPromptAreWholeWithChoicesAndPauses) {
  EngineOptions options = cached_options();
  options.step_tokens = 20;
  options.logit_rows = 20;
  const auto logprobs_of = [&](int choices, std::vector<int> pauses) {
    CachedEngine cached(options, 16, 0, SchedulePolicy::priority);
    GenerationRequest request{cached.prompt(70, 1), greedy(), 8, true};
    request.prompt_logprobs = true;
    request.choices = choices;
    EXPECT_TRUE(cached.scheduler->submit(request).ok());
    std::vector<double> values;
    int prompts = 0;
    for (int step = 0; !cached.scheduler->idle(); ++step) {
      if (std::find(pauses.begin(), pauses.end(), step) != pauses.end()) {
        GenerationRequest urgent{cached.prompt(9, 5), greedy(), 2, true};
        urgent.priority = 1;
        urgent.choices = 4;
        EXPECT_TRUE(cached.scheduler->submit(std::move(urgent)).ok());
      }
      auto events = cached.scheduler->step();
      EXPECT_TRUE(events.ok());
      for (const auto& prompt : events->prompts) {
        if (prompt.request != GenerationId{0}) continue;
        ++prompts;
        for (const auto& each : prompt.event.logprobs) {
          values.push_back(each ? each->logprob : 0);
        }
      }
    }
    EXPECT_EQ(prompts, 1);
    // Once the prompt is reported, a paused choice comes back from the cache.
    if (!pauses.empty() && pauses.front() > 6) {
      EXPECT_GT(cached.scheduler->counters().preemptions, 0);
      EXPECT_EQ(cached.scheduler->counters().recomputed_tokens, 0);
    }
    return values;
  };
  const auto expected = logprobs_of(1, {});
  ASSERT_EQ(expected.size(), 70u);
  EXPECT_EQ(logprobs_of(3, {}), expected);
  for (int pause = 1; pause < 9; ++pause) {
    EXPECT_EQ(logprobs_of(1, {pause}), expected) << pause;
    EXPECT_EQ(logprobs_of(3, {pause}), expected) << pause;
  }
}

}  // namespace
}  // namespace replayssm
