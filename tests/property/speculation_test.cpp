// Drafts change how many steps a text takes and nothing else: whatever a drafter says, tokens,
// states, records and log-probabilities are those of plain decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cached_engine.h"
#include "drafters.h"
#include "grammar/grammar.h"
#include "rounds.h"

namespace replayssm {
namespace {

constexpr int kOutputs = tests::rounds(512);
constexpr int kEvery = tests::kSanitized ? 5 : 1;  // of the cases of some tests
constexpr int kPromptLengths[] = {17, 40, 63};

struct Setting {
  std::string name;
  const char* model = kModelKinds[0];
  DType activations = DType::f32;
  DType state = DType::f32;
  int fold_block = 16;
  int window = 8;
  DeviceKind device = DeviceKind::cpu;
};

EngineOptions options_of(const Setting& setting, int window) {
  EngineOptions options = small_options();
  options.model_path = small_checkpoint(setting.model);
  options.activations = setting.activations;
  options.state_type = setting.state;
  options.fold_block = setting.fold_block;
  options.window_max = window;
  options.context_length = 640;
  return setting.device == DeviceKind::cuda ? on_gpu(options) : options;
}

std::vector<std::vector<TokenId>> prompts_of(const Engine& engine) {
  std::vector<std::vector<TokenId>> prompts;
  for (const int length : kPromptLengths) {
    prompts.push_back(random_prompt(engine, length, static_cast<unsigned>(length)));
  }
  return prompts;
}

std::vector<Finished> run_greedy(Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
                                 int outputs = kOutputs) {
  Scheduler scheduler(engine);
  for (const auto& prompt : prompts) {
    EXPECT_TRUE(scheduler.submit({prompt, greedy(), outputs, true}).ok());
  }
  return run_all(scheduler, true);
}

// What a sequence holds after a plain step, and after a chunk of a next prompt behind that.
std::pair<std::vector<std::byte>, std::vector<std::byte>> memory_later(Engine& engine,
                                                                       Sequence& sequence) {
  const auto step = [&] {
    const StepRow row = Engine::next_row(sequence, 64);
    EXPECT_TRUE(engine.prepare(row).ok());
    EXPECT_TRUE(engine.step({&row, 1}).ok());
    return memory_of(engine, sequence);
  };
  auto after_step = step();
  const auto tokens = joined(sequence.tokens, random_prompt(engine, 20, 5));
  EXPECT_TRUE(engine.extend(sequence, tokens, greedy()).ok());
  return {std::move(after_step), step()};
}

class Speculation : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (GetParam().device == DeviceKind::cpu) return;
    const std::string absent = no_gpu();
    if (!absent.empty()) GTEST_SKIP() << absent;
  }
};

TEST_P(Speculation, EveryDrafterGivesTheTokensAndTheBitsOfPlainDecoding) {
  const Setting& setting = GetParam();
  const auto plain_engine = make_engine(options_of(setting, 1));
  const auto prompts = prompts_of(*plain_engine);
  auto plain = run_greedy(*plain_engine, prompts);
  ASSERT_EQ(plain.size(), prompts.size());
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::pair<std::vector<std::byte>, std::vector<std::byte>>> memory;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    texts.push_back(joined(prompts[i], plain[i].output));
    memory.push_back(memory_later(*plain_engine, plain[i].sequence));
  }
  for (const NamedScript& named : drafter_doubles()) {
    const auto engine = make_engine(options_of(setting, setting.window));
    engine->use_drafter(std::make_unique<ScriptedDrafter>(texts, setting.window - 1, named.script));
    auto found = run_greedy(*engine, prompts);
    ASSERT_EQ(found.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(found[i].output, plain[i].output) << named.name << ", prompt " << i;
      const SequenceCounters& counters = found[i].counters;
      EXPECT_GT(counters.drafts, 0);
      if (std::string(named.name) == "perfect") {
        EXPECT_EQ(counters.drafts_accepted, counters.drafts);
        // The first token comes out of the prompt; one that is left over needs no window.
        const int decoded = kOutputs - 1;
        EXPECT_EQ(counters.windows,
                  decoded / setting.window + (decoded % setting.window > 1 ? 1 : 0));
      } else if (std::string(named.name) == "always wrong") {
        EXPECT_EQ(counters.drafts_accepted, 0);
      } else {
        EXPECT_GT(counters.drafts_accepted, 0) << named.name;
        EXPECT_LT(counters.drafts_accepted, counters.drafts) << named.name;
      }
      EXPECT_TRUE(memory_later(*engine, found[i].sequence) == memory[i])
          << named.name << ", prompt " << i << ": state, records or KV differ";
    }
  }
}

// Pages are those of committed tokens: what a window reached beyond them is given back with it.
TEST(SpeculativeRequest, RejectedDraftsLeaveNoPages) {
  EngineOptions options = options_of({}, 8);
  options.page_tokens = 1;
  const auto engine = make_engine(options);
  const auto wrong = [](TokenId truth, int, int) { return truth + 1; };
  engine->use_drafter(
      std::make_unique<ScriptedDrafter>(std::vector<std::vector<TokenId>>{}, 7, wrong));
  Scheduler scheduler(*engine);
  const auto id = scheduler.submit({random_prompt(*engine, 17, 1), greedy(), 200, true});
  ASSERT_TRUE(id.ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(scheduler.step().ok());
  scheduler.cancel(*id);
  const auto finished = run_all(scheduler, true);
  ASSERT_EQ(finished.size(), 1u);
  const Finished& ended = finished.front();
  EXPECT_GT(ended.counters.drafts, ended.counters.drafts_accepted);
  EXPECT_EQ(static_cast<int>(ended.sequence.memory.pages().size()), ended.sequence.evaluated());
}

// Fills everything that no committed token owns: records outside c .. t-1, conv inputs that no next
// step reads, keys and values at and past t.
void poison_beyond(Engine& engine, const Sequence& sequence, int byte) {
  SequenceMemory& memory = engine.memory();
  const SequenceLayout& layout = memory.layout();
  const Depth t = sequence.memory.cursor().committed;
  const Depth c = sequence.memory.cursor().checkpoint;
  const auto row = static_cast<std::size_t>(sequence.memory.row().value);
  const auto fill = [&](void* base, std::size_t type, std::size_t element, std::size_t count) {
    std::memset(static_cast<std::byte*>(base) + element * type, byte, count * type);
  };
  const auto key_heads = static_cast<std::size_t>(layout.heads.key_heads);
  const auto value_heads = static_cast<std::size_t>(layout.heads.value_heads);
  const auto gate = static_cast<std::size_t>(layout.heads.gate_width());
  for (const RingView& ring : memory.views().rings) {
    std::vector<bool> live(static_cast<std::size_t>(ring.ring_rows));
    for (Depth i = c; i < t; i += 1) {
      live[static_cast<std::size_t>(layout.geometry.ring_row(i))] = true;
    }
    for (std::size_t r = 0; r < live.size(); ++r) {
      if (live[r]) continue;
      for (std::size_t h = 0; h < key_heads; ++h) {
        const std::size_t record = (row * key_heads + h) * live.size() + r;
        fill(ring.keys, size_of(ring.key_type), record * kKeyDim, kKeyDim);
        fill(ring.key_scales, sizeof(float), record, 1);
      }
      for (std::size_t h = 0; h < value_heads; ++h) {
        const std::size_t record = (row * value_heads + h) * live.size() + r;
        fill(ring.corrections, size_of(ring.correction_type), record * kValueDim, kValueDim);
        fill(ring.gates, sizeof(float), record * gate, gate);
      }
    }
  }
  const int oldest =
      std::max(0, std::min(t.tokens - 4, c.tokens + layout.geometry.fold_block() - 3));
  for (const ConvRingView& ring : memory.views().conv_rings) {
    std::vector<bool> live(static_cast<std::size_t>(ring.conv_rows));
    for (Depth i{oldest}; i < t; i += 1) {
      live[static_cast<std::size_t>(layout.geometry.conv_row(i))] = true;
    }
    const auto channels = static_cast<std::size_t>(ring.channels);
    for (std::size_t r = 0; r < live.size(); ++r) {
      if (!live[r])
        fill(ring.inputs, size_of(ring.type), (row * live.size() + r) * channels, channels);
    }
  }
  const auto pages = sequence.memory.pages();
  const int positions = static_cast<int>(pages.size()) * layout.page_tokens;
  for (int layer = 0; layer < layout.kv_layers(); ++layer) {
    for (int i = t.tokens; i < positions; ++i) {
      const PageId page = pages[static_cast<std::size_t>(i / layout.page_tokens)];
      const int offset = i % layout.page_tokens;
      std::memset(memory.pages().keys_at(layer, page, offset), byte,
                  memory.pages().position_bytes(layer));
      std::memset(memory.pages().values_at(layer, page, offset), byte,
                  memory.pages().position_bytes(layer));
    }
  }
}

// Windows of which 1 .. T tokens are accepted, in an order that meets every ring phase, with NaN
// or infinity in everything at and past t before each step.
TEST_P(Speculation, PoisonAtAndPastTheCommittedLengthReachesNothing) {
  const Setting& setting = GetParam();
  if (setting.device == DeviceKind::cuda) GTEST_SKIP() << "the poison is written by the host";
  constexpr int kSteps = 70;
  const auto plain_engine = make_engine(options_of(setting, 1));
  const auto prompt = random_prompt(*plain_engine, 21, 3);
  const auto plain = run_greedy(*plain_engine, {prompt}, 512);
  const auto text = joined(prompt, plain.front().output);
  for (const int byte : {0xff, 0x7f}) {
    const auto engine = make_engine(options_of(setting, setting.window));
    Sequence sequence = engine->admit(prompt, greedy()).value();
    const StepRow chunk = Engine::next_row(sequence, 64);
    ASSERT_TRUE(engine->prepare(chunk).ok());
    ASSERT_TRUE(engine->step({&chunk, 1}).ok());
    for (int round = 0; round < kSteps && sequence.tokens.size() + 20 < text.size(); ++round) {
      const int right = (round * 5 + round / setting.window) % setting.window;
      std::vector<Draft> drafts(static_cast<std::size_t>(setting.window - 1));
      for (std::size_t d = 0; d < drafts.size(); ++d) {
        const TokenId truth = text[sequence.tokens.size() + d];
        drafts[d].token = static_cast<int>(d) < right ? truth : (truth == 0 ? 1 : truth - 1);
      }
      StepRow row = Engine::next_row(sequence, 64);
      row.phase = Phase::verify;
      row.drafts = drafts;
      row.tokens = row.logits = setting.window;
      ASSERT_TRUE(engine->prepare(row).ok());
      poison_beyond(*engine, sequence, byte);
      const auto results = engine->step({&row, 1});
      ASSERT_TRUE(results.ok()) << results.error().message;
      ASSERT_FALSE(results->front().error) << results->front().error->message;
      ASSERT_EQ(results->front().tokens.size(), static_cast<std::size_t>(right) + 1);
    }
    ASSERT_TRUE(std::equal(sequence.tokens.begin(), sequence.tokens.end(), text.begin()));
    Sequence straight = plain_engine->admit(sequence.tokens, greedy()).value();
    straight.prompt_tokens = static_cast<int>(prompt.size());
    while (straight.waiting() > 1) {
      StepRow row = Engine::next_row(straight, 64);
      row.logits = 0;
      ASSERT_TRUE(plain_engine->prepare(row).ok());
      ASSERT_TRUE(plain_engine->step({&row, 1}).ok());
    }
    EXPECT_TRUE(memory_later(*engine, sequence) == memory_later(*plain_engine, straight));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Speculation,
    ::testing::Values(Setting{"gdn", kModelKinds[0], DType::f32, DType::f32, 16, 8},
                      Setting{"gdn_bf16", kModelKinds[0], DType::bf16, DType::bf16, 8, 8},
                      Setting{"kda", kModelKinds[1], DType::f32, DType::f32, 16, 16},
                      Setting{"kda_bf16", kModelKinds[1], DType::bf16, DType::bf16, 32, 5},
                      Setting{"cuda", "", DType::bf16, DType::f32, 16, 8, DeviceKind::cuda},
                      Setting{"cuda_bf16", "", DType::bf16, DType::bf16, 8, 5, DeviceKind::cuda}),
    [](const auto& each) { return each.param.name; });

EngineOptions window_of(int window) { return options_of({"gdn"}, window); }

// A request's outputs and log-probabilities by choice, and the lengths that were evaluated.
struct Told {
  std::map<int, std::vector<TokenId>> tokens;
  std::map<int, std::vector<double>> logprobs;
  std::map<int, std::optional<TokenId>> stop_token;
  std::map<int, int> evaluated;
  bool operator==(const Told&) const = default;
};

Told run_request(Engine& engine, const GenerationRequest& request) {
  Scheduler scheduler(engine);
  EXPECT_TRUE(scheduler.submit(request).ok());
  Told told;
  while (!scheduler.idle()) {
    const auto events = scheduler.step();
    if (!events.ok()) {
      ADD_FAILURE() << events.error().message;
      break;
    }
    for (const auto& token : events->tokens) {
      told.tokens[token.choice].push_back(token.token);
      if (!token.logprobs) continue;
      told.logprobs[token.choice].push_back(token.logprobs->logprob);
      for (const auto& top : token.logprobs->top) {
        told.logprobs[token.choice].push_back(top.logprob);
      }
    }
    for (const Finished& finished : events->finished) {
      EXPECT_FALSE(finished.error) << finished.error->message;
      EXPECT_EQ(told.tokens[finished.choice], finished.output);
      told.stop_token[finished.choice] = finished.stop_token;
      told.evaluated[finished.choice] = finished.sequence.evaluated();
    }
  }
  return told;
}

// Plain, then with every double; equal.
void expect_as_plain(const GenerationRequest& request) {
  const auto plain_engine = make_engine(window_of(1));
  const Told plain = run_request(*plain_engine, request);
  std::vector<std::vector<TokenId>> texts;
  for (const auto& [choice, tokens] : plain.tokens) {
    texts.push_back(joined(request.prompt, tokens));
    if (plain.stop_token.at(choice)) texts.back().push_back(*plain.stop_token.at(choice));
  }
  for (const NamedScript& named : drafter_doubles()) {
    const auto engine = make_engine(window_of(8));
    engine->use_drafter(std::make_unique<ScriptedDrafter>(texts, 7, named.script));
    EXPECT_TRUE(run_request(*engine, request) == plain) << named.name;
  }
}

std::vector<TokenId> some_prompt(int tokens = 30) {
  const auto engine = make_engine(window_of(1));
  return random_prompt(*engine, tokens, 1);
}

TEST(SpeculativeRequest, SamplingPenaltiesBiasChoicesAndLogprobsAreThoseOfPlainDecoding) {
  GenerationRequest request{some_prompt(), {}, 60, true};
  request.sampling.temperature = 0.9;
  request.sampling.top_k = 40;
  request.sampling.top_p = 0.95;
  request.sampling.repetition_penalty = 1.1;
  request.sampling.frequency_penalty = 0.3;
  request.sampling.presence_penalty = 0.2;
  request.sampling.seed = 11;
  request.logit_bias = {{3, 2.0F}, {9, -4.0F}};
  request.choices = 3;
  request.top_logprobs = 2;
  expect_as_plain(request);
}

TEST(SpeculativeRequest, StopTokensAndMinTokensHoldInsideAWindow) {
  const auto engine = make_engine(window_of(1));
  const auto prompt = some_prompt();
  const auto text = run_greedy(*engine, {prompt}, 40).front().output;
  for (std::size_t k = 0; k < 20; k += kEvery) {
    GenerationRequest request{prompt, greedy(), 40, true};
    request.stop_token_ids = {text[k]};
    expect_as_plain(request);
    request.min_tokens = static_cast<int>(k) / 2;
    expect_as_plain(request);
  }
}

// Bytes as tokens; the document ends inside windows.
TEST(SpeculativeRequest, AConstraintHoldsAndEndsInsideAWindow) {
  constexpr TokenId kEnd = 510;  // the small model's end token
  std::vector<std::string> tokens(512);
  for (int b = 0; b < 256; ++b) tokens[static_cast<std::size_t>(b)] = static_cast<char>(b);
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const auto trie = std::make_shared<const grammar::TokenTrie>(views, std::span(&kEnd, 1));
  for (int longest = 1; longest < 9; ++longest) {
    const nlohmann::ordered_json schema = {{"type", "string"}, {"maxLength", longest}};
    GenerationRequest request{some_prompt(), {}, 40, false};
    request.sampling.temperature = 30;  // whatever the grammar allows
    request.sampling.seed = static_cast<std::uint64_t>(longest);
    request.choices = 2;
    request.constraint = std::make_shared<const grammar::ReasoningGate>(
        std::make_shared<grammar::ConstrainedTokens>(grammar::Grammar::from_schema(schema).value(),
                                                     trie),
        grammar::ReasoningGate::Start::in_answer, grammar::ReasoningGate::Tag{});
    expect_as_plain(request);
  }
}

TEST(SpeculativeRequest, AWindowDoesNotReachBeyondMaxTokensOrTheContext) {
  const auto prompt = some_prompt(620);
  for (int most = 1; most <= 20; most += kEvery) expect_as_plain({prompt, greedy(), most, true});
}

TEST(SpeculativeRequest, EveryWayToVerifyRaggedRowsGivesTheSameTokens) {
  const auto prompt = some_prompt();
  for (const RaggedVerify ragged :
       {RaggedVerify::fixed, RaggedVerify::cap_accept, RaggedVerify::compact}) {
    EngineOptions options = window_of(1);
    const auto plain_engine = make_engine(options);
    const auto prompts = prompts_of(*plain_engine);
    const auto plain = run_greedy(*plain_engine, prompts, 200);
    options.speculation.algorithm = SpeculativeAlgorithm::ngram;
    options.speculation.draft_tokens = 8;
    options.speculation.ragged_verify = ragged;
    const auto engine = make_engine(options);
    const auto found = run_greedy(*engine, prompts, 200);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(found[i].output, plain[i].output);
    EXPECT_GT(found.front().counters.drafts_accepted, 0) << "the text repeats itself";
  }
}

TEST(SpeculativeRequest, CapAcceptBelievesWhatCompactDoes) {
  const auto prompts = prompts_of(*make_engine(window_of(1)));
  std::vector<std::int64_t> windows;
  for (const RaggedVerify ragged : {RaggedVerify::cap_accept, RaggedVerify::compact}) {
    EngineOptions options = window_of(1);
    options.step_tokens = 256;  // all prompts in one step, whatever the windows
    options.speculation.algorithm = SpeculativeAlgorithm::ngram;
    options.speculation.ragged_verify = ragged;
    const auto engine = make_engine(options);
    for (const Finished& each : run_greedy(*engine, prompts, 200)) {
      windows.push_back(each.counters.drafts_accepted);
      windows.push_back(each.counters.steps);
    }
  }
  ASSERT_EQ(windows.size(), 12u);
  EXPECT_TRUE(std::equal(windows.begin(), windows.begin() + 6, windows.begin() + 6));
}

// Gives the requests of step n the n-th mix of 0 .. most drafts each.
class MixedLengths final : public Drafter {
 public:
  MixedLengths(std::unique_ptr<Drafter> inner, int requests)
      : inner_(std::move(inner)), requests_(requests) {}

  int most_drafts() const override { return inner_->most_drafts(); }
  Status observe(std::span<const CommittedTokens> rows) override { return inner_->observe(rows); }
  Status propose(std::span<DraftRequest> rows) override {
    REPLAYSSM_TRY(inner_->propose(rows));
    if (static_cast<int>(rows.size()) < requests_) return {};
    int rest = mix_++;
    for (DraftRequest& row : rows) {
      const auto length = static_cast<std::size_t>(rest % (most_drafts() + 1));
      row.drafts.resize(std::min(row.drafts.size(), length));
      rest /= most_drafts() + 1;
    }
    return {};
  }
  int mixes() const { return mix_; }

 private:
  std::unique_ptr<Drafter> inner_;
  int requests_;
  int mix_ = 0;
};

// Step by step, for every mix of window lengths 1 .. 6 of three requests.
TEST(SpeculativeRequest, CompactIsCapAcceptForEveryMixOfLengths) {
  constexpr int kWindow = 6, kMixes = kWindow * kWindow * kWindow;
  EngineOptions options = window_of(1);
  options.context_length = 1000;
  const auto plain_engine = make_engine(options);
  const auto prompts = prompts_of(*plain_engine);
  constexpr int kTokens = 900;
  std::vector<std::vector<TokenId>> texts;
  for (const Finished& each : run_greedy(*plain_engine, prompts, kTokens)) {
    texts.push_back(joined(prompts[texts.size()], each.output));
  }
  options.window_max = kWindow;
  std::vector<std::vector<std::tuple<std::int32_t, int, TokenId>>> told;  // request, step, token
  std::vector<std::int64_t> evaluated;
  for (const RaggedVerify ragged : {RaggedVerify::cap_accept, RaggedVerify::compact}) {
    options.speculation.ragged_verify = ragged;
    const auto engine = make_engine(options);
    auto drafter = std::make_unique<MixedLengths>(
        std::make_unique<ScriptedDrafter>(texts, kWindow - 1, drafter_doubles()[2].script),
        static_cast<int>(prompts.size()));
    const MixedLengths& lengths = *drafter;
    engine->use_drafter(std::move(drafter));
    Scheduler scheduler(*engine);
    for (const auto& prompt : prompts) {
      ASSERT_TRUE(scheduler.submit({prompt, greedy(), kTokens, true}).ok());
    }
    auto& tokens = told.emplace_back();
    evaluated.push_back(0);
    for (int step = 0; !scheduler.idle(); ++step) {
      const auto events = scheduler.step();
      ASSERT_TRUE(events.ok()) << events.error().message;
      for (const auto& each : events->tokens) {
        tokens.emplace_back(each.request.value, step, each.token);
      }
      for (const Finished& each : events->finished) {
        EXPECT_FALSE(each.error);
        evaluated.back() += each.counters.tokens_evaluated;
      }
    }
    EXPECT_GE(lengths.mixes(), kMixes);
  }
  EXPECT_TRUE(told[0] == told[1]);
  EXPECT_LT(evaluated[1], evaluated[0]);
}

// A window that is verified and not yet accepted has changed nothing that anybody else reads: who
// forks, archives or publishes the sequence there gets it at its committed length, and it can be
// dropped. (Where the step folds into the slot that it reads, the sequence is at no step boundary.)
TEST(SpeculativeRequest, BetweenVerificationAndAcceptanceASequenceStandsAtItsCommittedLength) {
  constexpr int kWindow = 8;
  const auto engine = make_engine(window_of(kWindow));
  const auto prompt = some_prompt(60);
  const auto plain = run_greedy(*engine, {prompt}, 80).front().output;
  const auto text = joined(prompt, plain);
  const auto go_on = [&](Sequence& sequence, std::size_t until) {
    while (sequence.tokens.size() < until) {
      const StepRow row = Engine::next_row(sequence, 64);
      EXPECT_TRUE(engine->prepare(row).ok());
      EXPECT_TRUE(engine->step({&row, 1}).ok());
    }
    return sequence.tokens == first_tokens(text, static_cast<int>(sequence.tokens.size()));
  };
  int looked_at = 0;
  for (std::size_t length = prompt.size() + 1; length < prompt.size() + 40; ++length) {
    Sequence sequence = engine->admit(prompt, greedy()).value();
    ASSERT_TRUE(go_on(sequence, length));
    const auto before = memory_of(*engine, sequence);
    std::vector<Draft> drafts(kWindow - 1);
    for (std::size_t d = 0; d < drafts.size(); ++d) {
      drafts[d].token = d < 3 ? text[length + d] : (text[length + d] + 1) % 7;
    }
    const StepRow row{&sequence, kWindow, Phase::verify, kWindow, nullptr, drafts};
    ASSERT_TRUE(engine->prepare(row).ok());
    const bool folds_in_place =
        engine->memory().blocks_folded(sequence.memory, kWindow, Phase::verify) > 0 &&
        sequence.memory.home() == sequence.memory.base();
    ASSERT_TRUE(engine->runner().evaluate({&row, 1}).ok());
    if (!folds_in_place) {
      ++looked_at;
      EXPECT_TRUE(memory_of(*engine, sequence) == before);
      Sequence fork = engine->fork(sequence, 1).value();
      const auto archive = engine->pause(sequence);
      ASSERT_TRUE(archive.ok());
      if (sequence.memory.cursor().checkpoint.tokens > 0) {
        EXPECT_TRUE(engine->memory().checkpoint_of(sequence.memory).ok());
      }
      EXPECT_TRUE(go_on(fork, length + 20)) << length;
      fork = Sequence{};
      Sequence restored = engine->resume(*archive).value();
      EXPECT_TRUE(go_on(restored, length + 20)) << length;
    }
    sequence = Sequence{};  // an abort
    expect_all_free(*engine);
  }
  EXPECT_GT(looked_at, 30);
}

// A drafter that says what is no token: the step goes on without.
TEST(SpeculativeRequest, DraftsOutsideTheVocabularyAreLeftOut) {
  const auto prompt = some_prompt();
  const auto plain_engine = make_engine(window_of(1));
  const auto plain = run_greedy(*plain_engine, {prompt}, 40);
  for (const TokenId foreign : {-1, 1 << 30}) {
    const auto engine = make_engine(window_of(8));
    engine->use_drafter(std::make_unique<ScriptedDrafter>(
        std::vector<std::vector<TokenId>>{joined(prompt, plain.front().output)}, 7,
        [=](TokenId truth, int, int place) { return place == 3 ? foreign : truth; }));
    const auto found = run_greedy(*engine, {prompt}, 40);
    EXPECT_EQ(found.front().output, plain.front().output);
    EXPECT_EQ(found.front().counters.drafts_accepted, found.front().counters.drafts);
  }
}

}  // namespace
}  // namespace replayssm
