// A whole model on a GPU against the same model on the CPU, and against itself. Skipped where there
// is no GPU, or no CUDA backend in the build.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cached_engine.h"
#include "core/random_stream.h"
#include "engine/logprobs.h"
#include "small_engine.h"
#include "source_dir.h"

namespace replayssm {
namespace {

EngineOptions tiny_options(DeviceKind device) {
  EngineOptions options = small_options();
  options.model_path = source_dir() / "models" / "tiny";
  options.device = device;
  options.activations.reset();
  options.deterministic = device == DeviceKind::cpu;
  options.max_running_requests = 8;
  options.context_length = 512;
  options.step_tokens = 256;
  options.logit_rows = 256;
  options.memory_budget = std::int64_t{2} << 30;
  return options;
}

class CudaEngine : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    options_ = tiny_options(DeviceKind::cuda);
    options_.state_type = GetParam();
    auto engine = Engine::create(options_);
    if (!engine) {
      const bool absent = engine.error().message.find("no GPU") != std::string::npos ||
                          engine.error().message.find("no CUDA backend") != std::string::npos;
      ASSERT_TRUE(absent) << engine.error().message;
      GTEST_SKIP() << engine.error().message;
    }
    engine_ = std::move(*engine);
  }

  // Logits of the last `logits` of `tokens` tokens that the sequence evaluates in one step.
  static std::vector<float> step(Engine& engine, Sequence& sequence, int tokens, Phase phase,
                                 int logits) {
    const StepRow row{&sequence, tokens, phase, logits};
    EXPECT_TRUE(engine.prepare(row).ok());
    const auto out = engine.runner().evaluate({&row, 1});
    EXPECT_TRUE(out.ok()) << out.error().message;
    if (!out) return {};
    std::vector<float> copy(out->begin(), out->end());
    EXPECT_TRUE(engine.runner().commit().ok());
    return copy;
  }
  static Sequence begin(Engine& engine, const std::vector<TokenId>& tokens) {
    return engine.admit(tokens, greedy()).value();
  }

  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

// Log-probabilities of a text's own tokens, its first `chunk` evaluated at once and the rest one by
// one.
std::vector<double> logprobs_of(Engine& engine, const std::vector<TokenId>& text, int chunk) {
  Sequence sequence = engine.admit(text, greedy()).value();
  std::vector<double> out;
  while (sequence.evaluated() + 1 < static_cast<int>(text.size())) {
    const int first = sequence.evaluated();
    const int tokens = first == 0 ? chunk : 1;
    const StepRow row{&sequence, tokens, first == 0 ? Phase::prefill : Phase::decode, tokens};
    EXPECT_TRUE(engine.prepare(row).ok());
    const auto logits = engine.runner().evaluate({&row, 1});
    EXPECT_TRUE(logits.ok()) << logits.error().message;
    if (!logits) return out;
    for (int n = 0; n < tokens; ++n) {
      const TokenId next = text[static_cast<std::size_t>(first + n) + 1];
      out.push_back(token_logprobs(engine.runner().logits_row(*logits, n), next, 0).logprob);
    }
    EXPECT_TRUE(engine.runner().commit().ok());
  }
  return out;
}

double relative_distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / size);
}

double mean_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

// Both round activations to bf16 in the same places and differ in the order of their sums, so they
// are about equally far from float32; 1.5 leaves room for the sample of 200 positions.
TEST_P(CudaEngine, IsAsCloseToFloat32AsTheCpuInBfloat16) {
  EngineOptions cpu = tiny_options(DeviceKind::cpu);
  cpu.state_type = GetParam();
  cpu.activations = DType::bf16;
  const auto rounded = make_engine(cpu);
  cpu.activations = DType::f32;
  cpu.state_type = DType::f32;
  const auto exact = make_engine(cpu);
  const std::vector<TokenId> text = random_prompt(*engine_, 201, 3);
  const std::vector<double> truth = logprobs_of(*exact, text, 120);
  const double of_cpu = mean_distance(logprobs_of(*rounded, text, 120), truth);
  const double of_gpu = mean_distance(logprobs_of(*engine_, text, 120), truth);
  RecordProperty("mean_distance_cpu", std::to_string(of_cpu));
  RecordProperty("mean_distance_gpu", std::to_string(of_gpu));
  EXPECT_GT(of_cpu, 0);
  EXPECT_LE(of_gpu, 1.5 * of_cpu);
}

// The first step of a shape is launched kernel by kernel, the second is captured, later ones are
// replayed.
TEST_P(CudaEngine, AGraphGivesTheBitsOfSeparateLaunches) {
  const std::vector<TokenId> text = random_prompt(*engine_, 60, 4);
  std::vector<std::vector<float>> logits;
  for (int turn = 0; turn < 4; ++turn) {
    Sequence sequence = begin(*engine_, text);
    std::vector<float> all = step(*engine_, sequence, 37, Phase::prefill, 1);
    for (int n = 0; n < 20; ++n) {
      const std::vector<float> one = step(*engine_, sequence, 1, Phase::decode, 1);
      all.insert(all.end(), one.begin(), one.end());
      if (turn == 0) break;  // the one step of the shape that is no graph
    }
    logits.push_back(std::move(all));
  }
  EXPECT_TRUE(std::equal(logits[0].begin(), logits[0].end(), logits[1].begin()));
  EXPECT_EQ(logits[1], logits[2]);
  EXPECT_EQ(logits[1], logits[3]);
}

// A fork shares the checkpoint and copies the rest; both go on as the parent alone would have.
TEST_P(CudaEngine, AForkAndItsParentGoOnAlike) {
  const std::vector<TokenId> text = random_prompt(*engine_, 80, 5);
  for (const int depth : {15, 16, 17, 33, 48}) {
    Sequence alone = begin(*engine_, text);
    step(*engine_, alone, depth, Phase::prefill, 0);
    Sequence parent = begin(*engine_, text);
    step(*engine_, parent, depth, Phase::prefill, 0);
    Sequence child = engine_->fork(parent, 1).value();
    for (int n = 0; n < 20; ++n) {
      const std::vector<float> expected = step(*engine_, alone, 1, Phase::decode, 1);
      EXPECT_EQ(step(*engine_, parent, 1, Phase::decode, 1), expected) << depth << " " << n;
      EXPECT_EQ(step(*engine_, child, 1, Phase::decode, 1), expected) << depth << " " << n;
    }
  }
}

// Through host memory and back.
TEST_P(CudaEngine, APausedSequenceGoesOnAsIfNothingHadHappened) {
  const std::vector<TokenId> text = random_prompt(*engine_, 80, 6);
  Sequence alone = begin(*engine_, text);
  step(*engine_, alone, 43, Phase::prefill, 0);
  std::vector<std::byte> archive;
  {
    Sequence paused = begin(*engine_, text);
    step(*engine_, paused, 43, Phase::prefill, 0);
    archive = engine_->pause(paused).value();
  }
  Sequence stranger = begin(*engine_, random_prompt(*engine_, 80, 7));
  step(*engine_, stranger, 50, Phase::prefill, 0);
  Sequence resumed = engine_->resume(archive).value();
  for (int n = 0; n < 20; ++n) {
    EXPECT_EQ(step(*engine_, resumed, 1, Phase::decode, 1),
              step(*engine_, alone, 1, Phase::decode, 1))
        << n;
  }
}

// Three rows are padded to four: what the fourth holds, a sequence or nothing, is nobody's
// business.
TEST_P(CudaEngine, PaddingAndBatchMatesChangeNoBit) {
  const std::vector<TokenId> text = random_prompt(*engine_, 60, 8);
  const auto decode = [&](int rows) {
    std::vector<Sequence> sequences;
    for (int r = 0; r < rows; ++r) {
      sequences.push_back(begin(*engine_, r == 0 ? text : random_prompt(*engine_, 60, 20 + r)));
      step(*engine_, sequences.back(), 30 + (r == 0 ? 0 : r), Phase::prefill, 0);
    }
    std::vector<float> logits;
    for (int n = 0; n < 20; ++n) {
      std::vector<StepRow> step_rows;
      for (Sequence& sequence : sequences) {
        step_rows.push_back({&sequence, 1, Phase::decode, 1});
        EXPECT_TRUE(engine_->prepare(step_rows.back()).ok());
      }
      const auto out = engine_->runner().evaluate(step_rows);
      EXPECT_TRUE(out.ok()) << out.error().message;
      if (!out) break;
      const auto first = engine_->runner().logits_row(*out, 0);
      logits.insert(logits.end(), first.begin(), first.end());
      EXPECT_TRUE(engine_->runner().commit().ok());
    }
    return logits;
  };
  EXPECT_EQ(decode(3), decode(4));
}

// Many settings, and what they need beside the parameters.
std::vector<TokenChoice> settings_of_choices() {
  static const std::pair<TokenId, float> kBias[] = {{3, 2.0f}, {40, -5.0f}, {-1, 1.0f}};
  static const SeenToken kSeen[] = {{1, 0}, {3, 2}, {17, 1}, {100000000, 1}};
  static const std::vector<std::uint32_t> kMask(64, 0x01010101u);
  std::vector<TokenChoice> choices;
  for (const double temperature : {0.0, 0.05, 1.0, 3.0}) {
    for (const int top_k : {0, 1, 5, 200}) {
      for (const double top_p : {1.0, 0.9, 1e-6}) {
        for (const double min_p : {0.0, 0.1}) {
          TokenChoice choice;
          choice.temperature = temperature;
          choice.top_k = top_k;
          choice.top_p = top_p;
          choice.min_p = min_p;
          choice.uniform = uniform_at(5, choices.size());
          const std::size_t kind = choices.size() % 5;
          if (kind == 1) choice.bias = kBias;
          if (kind == 2) choice.mask = kMask;
          if (kind == 3) {
            choice.seen = kSeen;
            choice.repetition_penalty = 1.2;
            choice.frequency_penalty = 0.3;
          }
          if (choices.size() % 3 == 0) choice.top_logprobs = static_cast<int>(choices.size() % 7);
          choices.push_back(choice);
        }
      }
    }
  }
  return choices;
}

// What the device chooses is what the host would choose of the same logits: eight rows, each with
// another setting.
TEST_P(CudaEngine, TheDeviceChoosesWhatTheCpuWould) {
  const std::vector<TokenChoice> settings = settings_of_choices();
  const std::vector<TokenId> text = random_prompt(*engine_, 70, 9);
  Sampler sampler;
  for (std::size_t first = 0; first < settings.size(); first += 8) {
    std::vector<Sequence> sequences;
    std::vector<StepRow> rows;
    for (int r = 0; r < 8; ++r) sequences.push_back(begin(*engine_, text));
    for (int r = 0; r < 8; ++r) {
      rows.push_back({&sequences[static_cast<std::size_t>(r)], 4 + 3 * r, Phase::prefill, 1});
      ASSERT_TRUE(engine_->prepare(rows.back()).ok());
    }
    const auto logits = engine_->runner().evaluate(rows);
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    std::vector<ChosenToken> expected;
    const std::span<const TokenChoice> choices = std::span(settings).subspan(first, 8);
    for (int r = 0; r < 8; ++r) {
      expected.push_back(sampler.choose(engine_->runner().logits_row(*logits, r),
                                        choices[static_cast<std::size_t>(r)]));
    }
    sequences.clear();
    for (int r = 0; r < 8; ++r) sequences.push_back(begin(*engine_, text));
    for (int r = 0; r < 8; ++r) {
      rows[static_cast<std::size_t>(r)].sequence = &sequences[static_cast<std::size_t>(r)];
      ASSERT_TRUE(engine_->prepare(rows[static_cast<std::size_t>(r)]).ok());
    }
    ASSERT_TRUE(engine_->runner().launch(rows).ok());
    ASSERT_TRUE(engine_->runner().choose(choices).ok());
    const auto chosen = engine_->runner().take();
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    ASSERT_TRUE(engine_->runner().commit().ok());
    for (std::size_t r = 0; r < 8; ++r) {
      const ChosenToken& token = (*chosen)[r];
      ASSERT_FALSE(token.error) << token.error->message;
      EXPECT_EQ(token.token, expected[r].token) << first + r;
      ASSERT_EQ(token.logprobs.has_value(), expected[r].logprobs.has_value());
      if (!token.logprobs) continue;
      EXPECT_NEAR(token.logprobs->logprob, expected[r].logprobs->logprob, 1e-6);
      ASSERT_EQ(token.logprobs->top.size(), expected[r].logprobs->top.size());
      for (std::size_t i = 0; i < token.logprobs->top.size(); ++i) {
        EXPECT_EQ(token.logprobs->top[i].token, expected[r].logprobs->top[i].token);
      }
    }
  }
}

// A mask that allows nothing is an error of its row alone.
TEST_P(CudaEngine, AMaskThatAllowsNothingEndsItsRowAlone) {
  std::vector<Sequence> sequences;
  std::vector<StepRow> rows;
  for (int r = 0; r < 2; ++r) sequences.push_back(begin(*engine_, random_prompt(*engine_, 20, 1)));
  for (Sequence& sequence : sequences) {
    rows.push_back({&sequence, 20, Phase::prefill, 1});
    ASSERT_TRUE(engine_->prepare(rows.back()).ok());
  }
  const std::vector<std::uint32_t> nothing(64, 0);
  TokenChoice choices[2];
  choices[0].mask = nothing;
  choices[1].uniform = 0.5;
  ASSERT_TRUE(engine_->runner().launch(rows).ok());
  ASSERT_TRUE(engine_->runner().choose(choices).ok());
  const auto chosen = engine_->runner().take();
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  ASSERT_TRUE((*chosen)[0].error);
  EXPECT_TRUE((*chosen)[0].finite);
  EXPECT_FALSE((*chosen)[1].error);
  ASSERT_TRUE(engine_->runner().commit().ok());
}

// The next step launched before the tokens of this one are read: nothing that a request gets
// differs. End tokens come while the step behind runs.
TEST_P(CudaEngine, OverlapChangesNothing) {
  EngineOptions options = options_;
  options.deterministic = true;
  std::vector<std::vector<TokenId>> outputs[2];
  std::vector<double> logprobs[2];
  for (const bool overlap : {false, true}) {
    options.overlap = overlap;
    const auto engine = make_engine(options);
    Scheduler scheduler(*engine);
    for (unsigned i = 0; i < 12; ++i) {
      SamplingParams params;
      params.temperature = i % 3 == 0 ? 0 : 0.9;
      params.top_k = i % 4 == 1 ? 20 : 0;
      params.top_p = i % 4 == 2 ? 0.9 : 1.0;
      params.seed = i;
      GenerationRequest request{random_prompt(*engine, 5 + 9 * static_cast<int>(i), i), params,
                                20 + 7 * static_cast<int>(i % 5), i % 2 == 0};
      if (i % 2 == 1) {
        for (TokenId token = 0; token < 40; ++token) request.stop_token_ids.push_back(token);
      }
      if (i == 5) request.top_logprobs = 3;
      if (i == 6) request.sampling.frequency_penalty = 0.4;
      ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
    }
    int ahead = 0;
    std::vector<Finished> finished;
    while (!scheduler.idle()) {
      auto events = scheduler.step();
      ASSERT_TRUE(events.ok()) << events.error().message;
      ahead += engine->launched().empty() ? 0 : 1;
      for (const auto& token : events->tokens) {
        if (token.logprobs) logprobs[overlap ? 1 : 0].push_back(token.logprobs->logprob);
      }
      for (Finished& each : events->finished) {
        each.sequence = Sequence{};
        finished.push_back(std::move(each));
      }
    }
    EXPECT_EQ(ahead > 10, overlap);
    std::sort(finished.begin(), finished.end(),
              [](const Finished& a, const Finished& b) { return a.request < b.request; });
    for (const Finished& each : finished) {
      EXPECT_NE(each.reason, FinishReason::error);
      outputs[overlap ? 1 : 0].push_back(each.output);
    }
    expect_all_free(*engine);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(logprobs[0], logprobs[1]);
}

// Checkpoints are published, shared slots get homes of their own, entries leave for the host and
// return, and rows are given back: the host waits for tokens and for nothing else.
TEST_P(CudaEngine, WhatTheCacheIsGivenMakesNobodyWait) {
  EngineOptions options = options_;
  options.kept_sequences_least = 3;
  options.poison = Poison::off;
  const auto engine = make_engine(options);
  PrefixCache cache(engine->memory(), engine->ops(),
                    {engine->plan().kept_rows, std::int64_t{1} << 28});
  SchedulerOptions scheduling;
  scheduling.cache = &cache;
  scheduling.track_interval = 16;
  Scheduler scheduler(*engine, scheduling);
  std::int64_t waits = 0, in_arena = 0;
  for (int round = 0; round < 3; ++round) {
    waits = engine->memory().space().waits();
    for (unsigned i = 0; i < 8; ++i) {
      GenerationRequest request{random_prompt(*engine, 40, i / 2), greedy(), 70, true};
      request.branch_points = {20};
      request.choices = i == 3 ? 2 : 1;
      if (i == 5) request.sampling.frequency_penalty = 0.3;
      ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
    }
    while (!scheduler.idle()) ASSERT_TRUE(scheduler.step().ok());
    in_arena = cache.host_bytes();
  }
  EXPECT_EQ(engine->memory().space().waits(), waits);
  EXPECT_GT(scheduler.counters().checkpoints_running, 30);
  EXPECT_GT(in_arena, 0);
  EXPECT_GT(cache.host_restores(), 0);
  cache.clear();
  expect_all_free(*engine);
}

// A prompt's log-probabilities are chosen on the device, too: no rows of logits come to the host,
// neither the prompt's nor those of who decodes beside it.
TEST_P(CudaEngine, LogProbabilitiesOfAPromptAreThoseOfItsLogits) {
  EngineOptions options = options_;
  options.deterministic = true;
  const auto engine = make_engine(options);
  const std::vector<TokenId> text = random_prompt(*engine, 60, 12);
  const std::vector<double> expected = logprobs_of(*engine, text, 40);
  Scheduler scheduler(*engine);
  ASSERT_TRUE(scheduler.submit({random_prompt(*engine, 30, 13), greedy(), 20, true}).ok());
  ASSERT_TRUE(scheduler.step().ok());
  GenerationRequest request{text, greedy(), 3, true};
  request.prompt_logprobs = true;
  request.top_logprobs = 2;
  ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
  const std::int64_t before = engine->memory().space().waits();
  std::vector<std::optional<TokenLogprobs>> given;
  while (!scheduler.idle()) {
    auto events = scheduler.step();
    ASSERT_TRUE(events.ok()) << events.error().message;
    for (auto& prompt : events->prompts) {
      if (!prompt.event.logprobs.empty()) given = std::move(prompt.event.logprobs);
    }
  }
  EXPECT_EQ(engine->memory().space().waits(), before);
  ASSERT_EQ(given.size(), text.size());
  for (std::size_t i = 1; i < given.size(); ++i) {
    ASSERT_TRUE(given[i].has_value());
    EXPECT_EQ(given[i]->top.size(), 2u);
    EXPECT_NEAR(given[i]->logprob, expected[i - 1], 1e-6) << i;
  }
}

// Two models that round activations to bf16 are this far from each other; see
// tests/e2e/parity_bfloat16.cpp, whose models have half as many layers.
constexpr double kBfloat16Distance = 3e-2;

// From separate launches and from a graph, with several rows and with one.
TEST_P(CudaEngine, HiddenStatesAreThoseOfTheCpu) {
  constexpr int kTaps[] = {3, kTapEmbedding, kTapFinalNorm};
  EngineOptions on_cpu = tiny_options(DeviceKind::cpu);
  on_cpu.state_type = GetParam();
  on_cpu.activations = DType::bf16;
  const auto cpu = make_engine(on_cpu);
  const std::vector<TokenId> text = random_prompt(*engine_, 60, 10);
  std::vector<std::vector<float>> hidden;
  for (Engine* engine : {cpu.get(), engine_.get()}) {
    engine->runner().keep_hidden(kTaps);
    Sequence sequence = begin(*engine, text);
    std::vector<float>& all = hidden.emplace_back();
    for (int n = 0; n < 12; ++n) {
      step(*engine, sequence, n == 0 ? 40 : 1, n == 0 ? Phase::prefill : Phase::decode, 1);
      const auto of_row = engine->runner().hidden_of(0);
      all.insert(all.end(), of_row.begin(), of_row.end());
    }
    engine->runner().keep_hidden({});
  }
  ASSERT_EQ(hidden[0].size(), hidden[1].size());
  ASSERT_EQ(hidden[0].size(), 51u * 3u * static_cast<std::size_t>(engine_->config().hidden_size));
  const double distance = relative_distance(hidden[1], hidden[0]);
  RecordProperty("distance", std::to_string(distance));
  EXPECT_LT(distance, kBfloat16Distance);
}

// The same hidden states in, a prompt and then token by token: the same logits out, and what the
// GPU picks is the largest of its own.
TEST_P(CudaEngine, TheDraftHeadComputesWhatTheCpusDoes) {
  constexpr int kPrompt = 37, kTokens = 45;
  std::vector<std::vector<float>> logits, outputs;
  std::vector<TokenId> picked;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    EngineOptions options = tiny_options(device);
    options.state_type = GetParam();
    options.activations = DType::bf16;
    options.speculation.algorithm = SpeculativeAlgorithm::mtp;
    const auto engine = make_engine(options);
    ASSERT_NE(engine, nullptr);
    DraftHead& head = *engine->draft_head();
    const auto width = static_cast<std::size_t>(engine->config().hidden_size);
    const auto stride = static_cast<std::size_t>(engine->config().vocab_rows);
    const KvView kv = engine->memory().pages().kv(engine->memory().layout().attention_layers);
    const std::vector<TokenId> text = random_prompt(*engine, kTokens, 11);
    Sequence sequence = begin(*engine, text);
    ASSERT_TRUE(engine->prepare({&sequence, kTokens, Phase::prefill}).ok());
    std::vector<float>& all = logits.emplace_back();
    std::vector<float>& states = outputs.emplace_back();
    for (int at = 1; at < kTokens;) {
      const int tokens = at == 1 ? kPrompt - 1 : 1;
      std::vector<float> hidden(static_cast<std::size_t>(tokens) * width);
      for (std::size_t i = 0; i < hidden.size(); ++i) {
        hidden[i] =
            static_cast<float>(2 * uniform_at(7, static_cast<std::uint64_t>(at) * 100000 + i) - 1);
      }
      const DraftRow row{Depth{at}, 0, tokens, sequence.memory.pages(), true};
      const auto of_row =
          std::span(text).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(tokens));
      std::vector<float> out(stride), given = hidden;
      ASSERT_TRUE(head.draft(of_row, {&row, 1}, kv, hidden, out).ok());
      all.insert(all.end(), out.begin(), out.begin() + engine->config().vocab_size);
      states.insert(states.end(), hidden.begin(), hidden.end());
      if (head.picks_best()) {
        TokenId best = -1;
        ASSERT_TRUE(head.draft_best(of_row, {&row, 1}, kv, given, {&best, 1}).ok());
        EXPECT_EQ(given, hidden);
        EXPECT_EQ(best, argmax(std::span<const float>(out).first(
                            static_cast<std::size_t>(engine->config().vocab_size))));
        picked.push_back(best);
      }
      at += tokens;
    }
  }
  EXPECT_EQ(picked.size(), static_cast<std::size_t>(1 + kTokens - kPrompt));
  const double of_logits = relative_distance(logits[1], logits[0]);
  const double of_states = relative_distance(outputs[1], outputs[0]);
  RecordProperty("distance_logits", std::to_string(of_logits));
  RecordProperty("distance_states", std::to_string(of_states));
  EXPECT_LT(of_logits, kBfloat16Distance);
  EXPECT_LT(of_states, kBfloat16Distance);
}

TEST_P(CudaEngine, EverythingIsGivenBack) {
  {
    std::vector<Sequence> sequences;
    for (int r = 0; r < 5; ++r) {
      sequences.push_back(begin(*engine_, random_prompt(*engine_, 60, r)));
      step(*engine_, sequences.back(), 40, Phase::prefill, 0);
      step(*engine_, sequences.back(), 1, Phase::decode, 1);
    }
  }
  EXPECT_EQ(engine_->memory().slots().used(), 0);
  EXPECT_EQ(engine_->memory().rows().used(), 0);
  EXPECT_EQ(engine_->memory().pages().used(), 0);
}

INSTANTIATE_TEST_SUITE_P(States, CudaEngine, testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

}  // namespace
}  // namespace replayssm
