// Drafters with weights of their own: their keys and values follow from the committed tokens alone,
// their drafts change no text, and what they need is planned for.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "block_drafter_options.h"
#include "cached_engine.h"
#include "draft_head.h"
#include "engine/memory_needs.h"
#include "spec/block_drafter.h"
#include "spec/mtp_drafter.h"

namespace replayssm {
namespace {

// Empty: the model's own draft head.
using Drafted = std::optional<DrafterKind>;

std::string name_of_drafter(const Drafted& drafter) { return drafter ? drafter->name : "head"; }

EngineOptions options_without() {
  static const TestCheckpoint with_head("ratio1_float32_flat_tied");
  static const bool added = (add_draft_head(with_head), true);
  EngineOptions options = cached_options();
  options.model_path = added ? with_head.path() : "";
  options.context_length = 640;
  return options;
}

EngineOptions options_with(const Drafted& drafter) {
  EngineOptions options = options_without();
  if (drafter) {
    set_drafter(options, *drafter);
  } else {
    options.speculation.algorithm = SpeculativeAlgorithm::mtp;
    options.speculation.steps = 5;
  }
  return options;
}

std::string step_rates_file(const char* text) {
  const auto path = std::filesystem::path(testing::TempDir()) / "model_drafts_step_rates.json";
  std::ofstream(path) << text;
  return path.string();
}

class ModelDrafts : public ::testing::TestWithParam<Drafted> {};

void step(Engine& engine, Sequence& sequence) {
  const StepRow row = Engine::next_row(sequence, 64);
  EXPECT_TRUE(engine.prepare(row).ok());
  EXPECT_TRUE(engine.step({&row, 1}).ok());
}

// What a finished sequence holds after a plain step, against the same tokens read as a prompt.
void expect_memory_as_read(Engine& engine, Sequence& drafted) {
  step(engine, drafted);
  Sequence read =
      engine.admit({drafted.tokens.begin(), drafted.tokens.end() - 1}, greedy()).value();
  while (read.waiting() > 1 || read.evaluated() < drafted.evaluated()) step(engine, read);
  ASSERT_EQ(read.evaluated(), drafted.evaluated());
  EXPECT_TRUE(memory_of(engine, read) == memory_of(engine, drafted));
}

// However a text came about, drafted or read, what is held for it is the same, the drafter's keys
// and values included.
TEST_P(ModelDrafts, KeysAndValuesFollowFromTheCommittedTokensAlone) {
  const auto engine = make_engine(options_with(GetParam()));
  const auto prompt = random_prompt(*engine, 25, 2);
  Scheduler scheduler(*engine);
  ASSERT_TRUE(scheduler.submit({prompt, greedy(), 120, true}).ok());
  auto finished = run_all(scheduler, true);
  EXPECT_GT(finished.front().counters.drafts, 0);
  expect_memory_as_read(*engine, finished.front().sequence);
}

TEST_P(ModelDrafts, ChangeNoTextWhateverTheRequestAsks) {
  const auto plain_engine = make_engine(options_without());
  const auto engine = make_engine(options_with(GetParam()));
  for (const double temperature : {0.0, 0.8}) {
    Scheduler plain(*plain_engine);
    Scheduler speculative(*engine);
    for (const int length : {1, 30, 63}) {
      GenerationRequest request{random_prompt(*engine, length, static_cast<unsigned>(length)),
                                {},
                                tests::rounds(512),
                                true};
      request.sampling.temperature = temperature;
      request.sampling.top_k = 3;
      request.sampling.seed = 5;
      request.choices = temperature > 0 && length == 30 ? 2 : 1;
      ASSERT_TRUE(plain.submit(request).ok());
      ASSERT_TRUE(speculative.submit(request).ok());
    }
    const auto expected = run_all(plain);
    const auto found = run_all(speculative);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].output, expected[i].output) << "temperature " << temperature;
      EXPECT_GT(found[i].counters.drafts, 0);
    }
  }
}

TEST_P(ModelDrafts, WhatIsPlannedForThemIsAllocated) {
  EngineOptions options = options_with(GetParam());
  options.memory_budget = std::int64_t{64} << 20;
  const auto engine = make_engine(options);
  std::int64_t planned = 0;
  for (const MemoryLine& line : engine->plan().lines) {
    if (line.name == "drafter") planned = line.bytes;
  }
  const int drafts = engine->most_drafts();
  std::int64_t bytes = engine->runner().hidden_bytes();
  if (GetParam()) {
    const auto& path = options.speculation.draft_model_path;
    const auto config = load_block_draft_config(path, engine->config()).value();
    const auto weights = load_block_draft_weights(path, config).value();
    EXPECT_EQ(planned_weight_bytes(config), weights.bytes);
    const BlockDrafter::Sizes sizes{drafts, options.step_tokens, options.max_running_requests};
    bytes += weights.bytes +
             BlockDrafter::bytes(config, engine->model_options(), engine->threads(), sizes);
  } else {
    bytes += MtpDrafter::bytes(engine->config(),
                               {drafts, options.step_tokens, options.max_running_requests});
  }
  EXPECT_EQ(planned, bytes);
  const SequenceLayout& layout = engine->memory().layout();
  EXPECT_EQ(layout.kv_layers(), layout.attention_layers + (GetParam() ? 2 : 1));
  EXPECT_EQ(engine->memory().pages().bytes(), engine->plan().pages * layout.page_bytes());
}

// Rejection sampling in the engine: how often texts come whose tokens leave these rests, drafted or
// not.
class SampledModelDrafts : public ::testing::TestWithParam<Drafted> {};

TEST_P(SampledModelDrafts, LeaveTheDistributionOfTheTextAlone) {
  EngineOptions options = options_with(GetParam());
  options.context_length = 320;
  options.max_running_requests = 8;
  const auto plain_engine = make_engine(options_without());
  options.speculation.sampled_drafts = true;
  if (GetParam() && GetParam()->confidence) {
    // How many drafts are verified depends on how sure the drafter is.
    options.speculation.step_rates = step_rates_file(R"({"1": 10, "8": 9, "64": 4})");
  }
  const auto engine = make_engine(options);
  const auto prompt = random_prompt(*engine, 12, 4);
  constexpr int kTexts = tests::rounds(3000);
  std::int64_t accepted = 0;
  const auto count = [&](Engine& of) {
    std::map<std::vector<TokenId>, int> counts;
    Scheduler scheduler(of);
    for (int i = 0; i < kTexts; ++i) {
      GenerationRequest request{prompt, {}, 4, true};
      request.sampling.temperature = 1.5;
      request.sampling.seed = static_cast<std::uint64_t>(i);
      EXPECT_TRUE(scheduler.submit(request).ok());
    }
    for (const Finished& finished : run_all(scheduler)) {
      std::vector<TokenId> rests;
      for (int k = 0; k < 3; ++k) rests.push_back(finished.output[static_cast<std::size_t>(k)] % 3);
      ++counts[rests];
      accepted += finished.counters.drafts_accepted;
    }
    return counts;
  };
  const auto plain = count(*plain_engine);
  const auto drafted = count(*engine);
  EXPECT_GT(accepted, 0);
  // Two samples of one distribution: sum of (a - b)^2 / (a + b) is chi-squared.
  double statistic = 0;
  std::set<std::vector<TokenId>> texts;
  for (const auto& counts : {plain, drafted}) {
    for (const auto& [text, times] : counts) texts.insert(text);
  }
  for (const auto& text : texts) {
    const auto times = [&](const auto& counts) {
      const auto found = counts.find(text);
      return found == counts.end() ? 0.0 : static_cast<double>(found->second);
    };
    const double difference = times(plain) - times(drafted);
    statistic += difference * difference / (times(plain) + times(drafted));
  }
  const double freedom = static_cast<double>(texts.size()) - 1;
  EXPECT_LT(statistic, freedom + 4.5 * std::sqrt(2 * freedom));
}

std::vector<Drafted> all_drafters() {
  std::vector<Drafted> drafters{std::nullopt};
  for (const DrafterKind& kind : kDrafterKinds) drafters.emplace_back(kind);
  return drafters;
}

INSTANTIATE_TEST_SUITE_P(Drafters, ModelDrafts, ::testing::ValuesIn(all_drafters()),
                         [](const auto& each) { return name_of_drafter(each.param); });

// Those whose random drafts are now and then accepted.
INSTANTIATE_TEST_SUITE_P(Drafters, SampledModelDrafts,
                         ::testing::Values(Drafted{}, Drafted{kDFlash2}, Drafted{kDSparkVanilla}),
                         [](const auto& each) { return name_of_drafter(each.param); });

// A DSpark drafter whose Markov head knows which token follows which in these texts, and nothing
// else: right often, wrong often.
void teach_followers(const TestDrafter& drafter, const std::vector<std::vector<TokenId>>& texts) {
  constexpr int kRank = 64;
  drafter.files().edit_config([&](nlohmann::json& config) { config["markov_rank"] = +kRank; });
  std::vector<float> before(512 * kRank);
  std::vector<float> after(512 * kRank);
  for (std::size_t i = 0; i < before.size(); ++i) {
    before[i] = uniform_at(77, i) < 0.5 ? -1.0F : 1.0F;
  }
  std::set<std::pair<TokenId, TokenId>> known;
  for (const auto& text : texts) {
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (!known.emplace(text[i - 1], text[i]).second) continue;
      for (std::size_t r = 0; r < kRank; ++r) {
        after[static_cast<std::size_t>(text[i]) * kRank + r] +=
            before[static_cast<std::size_t>(text[i - 1]) * kRank + r];
      }
    }
  }
  drafter.files().edit_tensors([&](EditableTensors& tensors) {
    RandomTensors taught;
    taught.set("markov_head.markov_w1.weight", {512, kRank}, before);
    taught.set("markov_head.markov_w2.weight", {512, kRank}, after);
    taught.add("confidence_head.proj.weight", {1, 64 + kRank});
    for (auto& [name, tensor] : taught.take()) tensors[name] = tensor;
  });
}

std::vector<std::vector<TokenId>> outputs_of(Engine& engine,
                                             const std::vector<std::vector<TokenId>>& prompts,
                                             int outputs, std::vector<Finished>* all = nullptr) {
  Scheduler scheduler(engine);
  for (const auto& prompt : prompts) {
    // With several followers of most tokens.
    GenerationRequest request{prompt, {}, outputs, true};
    request.sampling.temperature = 8;
    request.sampling.top_k = 3;
    request.sampling.seed = 9;
    EXPECT_TRUE(scheduler.submit(request).ok());
  }
  std::vector<std::vector<TokenId>> texts;
  auto finished = run_all(scheduler, true);
  for (const Finished& each : finished) texts.push_back(each.output);
  if (all != nullptr) *all = std::move(finished);
  return texts;
}

TEST(TaughtDrafter, WindowsOfWhichSomeDraftsAreRightLeaveTextAndMemoryAlone) {
  const auto plain_engine = make_engine(options_without());
  std::vector<std::vector<TokenId>> prompts;
  for (const unsigned length : {17, 40, 63}) {
    prompts.push_back(random_prompt(*plain_engine, static_cast<int>(length), length));
  }
  const auto texts = outputs_of(*plain_engine, prompts, tests::rounds(512));
  const TestDrafter drafter(kDSparkVanilla);
  teach_followers(drafter, texts);
  EngineOptions options = options_without();
  set_drafter(options, kDSparkVanilla, drafter);
  const auto engine = make_engine(options);
  std::vector<Finished> finished;
  EXPECT_EQ(outputs_of(*engine, prompts, tests::rounds(512), &finished), texts);
  for (Finished& each : finished) {
    EXPECT_GT(each.counters.drafts_accepted, each.counters.windows / 4);
    EXPECT_LT(each.counters.drafts_accepted, each.counters.drafts);
    expect_memory_as_read(*engine, each.sequence);
  }
}

// However a drafter's confidence is used, it decides how many drafts are verified, and no token.
TEST(TaughtDrafter, ConfidenceDecidesHowManyDraftsAreVerifiedAndNoToken) {
  const auto plain_engine = make_engine(options_without());
  std::vector<std::vector<TokenId>> prompts;
  for (const unsigned length : {17, 40}) {
    prompts.push_back(random_prompt(*plain_engine, static_cast<int>(length), length));
  }
  constexpr int kOutputs = 120;
  const auto texts = outputs_of(*plain_engine, prompts, kOutputs);
  const TestDrafter drafter(kDSparkVanilla);
  teach_followers(drafter, texts);
  const auto drafts_with = [&](double threshold, const std::string& rates, RaggedVerify ragged) {
    EngineOptions options = options_without();
    set_drafter(options, kDSparkVanilla, drafter);
    options.speculation.confidence_threshold = threshold;
    options.speculation.step_rates = rates;
    options.speculation.ragged_verify = ragged;
    const auto engine = make_engine(options);
    EXPECT_EQ(engine->step_rates() != nullptr, rates != "none" && ragged != RaggedVerify::fixed);
    std::vector<Finished> finished;
    EXPECT_EQ(outputs_of(*engine, prompts, kOutputs, &finished), texts);
    std::int64_t drafts = 0;
    for (const Finished& each : finished) drafts += each.counters.drafts;
    finished.clear();
    expect_all_free(*engine);
    return drafts;
  };
  for (const RaggedVerify ragged : {RaggedVerify::compact, RaggedVerify::cap_accept}) {
    const auto all = drafts_with(0, "none", ragged);
    const auto sure = drafts_with(0.6, "none", ragged);
    EXPECT_GT(sure, 0);
    EXPECT_LT(sure, all);
    const auto rated = drafts_with(0, step_rates_file(R"({"1": 10, "8": 9, "64": 4})"), ragged);
    EXPECT_GT(rated, 0);
    EXPECT_LT(rated, all);
    drafts_with(0, "measure", ragged);
  }
  EXPECT_EQ(drafts_with(0.6, "measure", RaggedVerify::fixed),
            drafts_with(0, "none", RaggedVerify::fixed));
}

}  // namespace
}  // namespace replayssm
