// Whatever was reused, evicted, brought back from the host, forked, paused or cancelled before: a
// request gets the tokens that it gets on an engine of its own, and in the end nothing is held.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "block_drafter_options.h"
#include "draft_head.h"
#include "rounds.h"
#include "slow_device.h"
#include "small_engine.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

struct Setting {
  std::string name;
  const char* model = kModelKinds[0];
  DType state = DType::f32;
  Recurrence recurrence = Recurrence::replay;
  int fold_block = 16;
  int track_interval = 32;
  std::int64_t host_bytes = 0;
  SchedulePolicy policy = SchedulePolicy::first_come;
  int step_tokens = 64;
  SpeculativeAlgorithm drafter = SpeculativeAlgorithm::none;
  const DrafterKind* block_drafter = nullptr;
  int spare_pages = -1;  // beyond what one request can need; -1: as many as are useful
  DeviceKind device = DeviceKind::cpu;
  Poison poison = Poison::on;  // fills are in order with transfers, which then hide nothing
  bool slow_transfers = false;
  bool sanitized = false;  // also under sanitizers, where a round takes thirty times as long
};

EngineOptions options_of(const Setting& setting) {
  EngineOptions options = small_options();
  options.model_path = small_checkpoint(setting.model);
  options.state_type = setting.state;
  options.recurrence = setting.recurrence;
  options.fold_block = setting.fold_block;
  options.step_tokens = setting.step_tokens;
  options.kept_sequences_least = 5;
  options.speculation.algorithm = setting.drafter;
  if (setting.device == DeviceKind::cuda) {
    options = on_gpu(options);
    if (has_draft_model(setting.drafter)) {
      const bool dspark = setting.drafter == SpeculativeAlgorithm::dspark;
      options.speculation.draft_model_path =
          source_dir() / "models" / (dspark ? "tiny-dspark" : "tiny-dflash2");
      options.speculation.step_rates = "none";
    }
  } else if (setting.drafter == SpeculativeAlgorithm::mtp) {
    static const TestCheckpoint with_head(kModelKinds[0]);
    static const bool added = (add_draft_head(with_head), true);
    options.model_path = added ? with_head.path() : "";
  }
  if (setting.block_drafter != nullptr) set_drafter(options, *setting.block_drafter);
  if (setting.spare_pages >= 0) {
    // The smallest budget for the same rows, and so many pages more.
    const auto roomy = make_engine(options);
    const MemoryPlan& plan = roomy->plan();
    const std::int64_t page = roomy->memory().pages().bytes() / plan.pages;
    const int context_pages = options.context_length / options.page_tokens;
    options.memory_budget = plan.used - (plan.pages - context_pages - setting.spare_pages) * page;
  }
  options.poison = setting.slow_transfers ? Poison::off : setting.poison;
  return options;
}

class CachedServing : public ::testing::TestWithParam<Setting> {};

// What a request asked for and what it got.
struct Asked {
  GenerationRequest request;
  std::map<int, std::vector<TokenId>> outputs;
  bool cancelled = false;
};

// The output of choice i of a request, alone on an engine without a cache.
class Cold {
 public:
  explicit Cold(EngineOptions options) {
    options.kept_sequences_least = 0;
    options.speculation = {};
    engine_ = make_engine(options);
  }
  const std::vector<TokenId>& output(const GenerationRequest& request, int choice) {
    GenerationRequest alone;
    alone.prompt = request.prompt;
    alone.sampling = request.sampling;
    alone.sampling.seed += static_cast<std::uint64_t>(choice);
    alone.max_tokens = request.max_tokens;
    alone.ignore_eos = true;
    auto& known = outputs_[{alone.prompt, alone.sampling.seed, alone.max_tokens}];
    if (known.empty()) {
      Scheduler scheduler(*engine_);
      EXPECT_TRUE(scheduler.submit(alone).ok());
      known = run_all(scheduler).front().output;
    }
    return known;
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::map<std::tuple<std::vector<TokenId>, std::uint64_t, int>, std::vector<TokenId>> outputs_;
};

TEST_P(CachedServing, EveryRequestGetsWhatAColdEngineGivesIt) {
  const Setting& setting = GetParam();
  if (tests::kSanitized && !setting.sanitized) GTEST_SKIP() << "the others run the same code";
  if (setting.device == DeviceKind::cuda) {
    const std::string absent = no_gpu();
    if (!absent.empty()) GTEST_SKIP() << absent;
  }
  const EngineOptions options = options_of(setting);
  Cold cold(options);
  int reused = 0;
  int restored = 0;
  int paused = 0;
  int stopped = 0;
  std::int64_t transfers = 0, followed = 0;
  for (unsigned seed = 0; seed < static_cast<unsigned>(tests::rounds(6)); ++seed) {
    std::mt19937 random(seed), ends(seed + 1000);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const auto engine =
        make_engine(options, setting.slow_transfers ? make_slow_device : make_device);
    auto* const slow = dynamic_cast<SlowTransfers*>(&engine->memory().space());
    PrefixCache cache(engine->memory(), engine->ops(),
                      {engine->plan().kept_rows, setting.host_bytes});
    SchedulerOptions scheduling;
    scheduling.policy = setting.policy;
    scheduling.cache = &cache;
    scheduling.track_interval = setting.track_interval;
    scheduling.overlap = seed % 3 == 2 ? Overlap::off : Overlap::always;
    if (setting.spare_pages >= 0) scheduling.promised_tokens = 4;
    Scheduler scheduler(*engine, scheduling);

    std::map<GenerationId, Asked> asked;
    std::vector<std::vector<TokenId>> pasts;  // prompts with what came after them
    const auto some_prompt = [&] {
      std::vector<TokenId> prompt;
      if (!pasts.empty() && below(5) > 0) {
        prompt = pasts[static_cast<std::size_t>(below(static_cast<int>(pasts.size())))];
        if (below(3) > 0)
          prompt.resize(static_cast<std::size_t>(1 + below(static_cast<int>(prompt.size()))));
      }
      const int more = prompt.empty() ? 1 + below(90) : below(20);
      for (const TokenId token : random_prompt(*engine, more, static_cast<unsigned>(random())))
        prompt.push_back(token);
      prompt.resize(std::min<std::size_t>(prompt.size(), 180));
      return prompt;
    };
    int left = 24;
    while (left > 0 || !scheduler.idle()) {
      for (int i = below(3); i > 0 && left > 0; --i, --left) {
        GenerationRequest request;
        request.prompt = some_prompt();
        request.sampling.seed = static_cast<std::uint64_t>(below(3));
        request.max_tokens = 1 + below(setting.spare_pages >= 0 ? 75 : 30);
        request.ignore_eos = true;
        request.choices = below(6) == 0 ? 2 + below(2) : 1;
        request.priority = below(3);
        // One token in sixteen ends it.
        const int vocab_size = engine->config().vocab_size;
        const auto draw = static_cast<int>(ends() % 48);
        for (int token = draw < 16 ? draw : vocab_size; token < vocab_size; token += 16) {
          request.stop_token_ids.push_back(token);
        }
        if (below(2) == 0) {
          request.branch_points = {below(static_cast<int>(request.prompt.size())), 7};
        }
        const auto id = scheduler.submit(request);
        ASSERT_TRUE(id.ok()) << id.error().message;
        pasts.push_back(request.prompt);
        asked[*id].request = std::move(request);
      }
      if (below(25) == 0 && !asked.empty()) {
        Asked& some = std::next(asked.begin(), below(static_cast<int>(asked.size())))->second;
        scheduler.cancel(std::find_if(asked.begin(), asked.end(), [&](const auto& each) {
                           return &each.second == &some;
                         })->first);
        some.cancelled = true;
      }
      if (below(40) == 0) cache.clear();
      if (slow != nullptr && ends() % 4 == 0) slow->progress();
      auto events = scheduler.step();
      ASSERT_TRUE(events.ok()) << events.error().message;
      for (const Finished& finished : events->finished) {
        Asked& request = asked.at(finished.request);
        if (finished.reason == FinishReason::cancelled && request.cancelled) continue;
        std::vector<TokenId> expected = cold.output(request.request, finished.choice);
        const auto& stops = request.request.stop_token_ids;
        const auto end =
            std::find_first_of(expected.begin(), expected.end(), stops.begin(), stops.end());
        ASSERT_EQ(finished.reason,
                  end == expected.end() ? FinishReason::length : FinishReason::stop)
            << setting.name << (finished.error ? finished.error->message : "");
        stopped += end == expected.end() ? 0 : 1;
        expected.erase(end, expected.end());
        ASSERT_EQ(finished.output, expected)
            << setting.name << " seed " << seed << " request " << finished.request.value
            << " choice " << finished.choice << " reused " << finished.reused_tokens << " of "
            << finished.prompt_tokens;
        reused += finished.reused_tokens;
        std::vector<TokenId> past = request.request.prompt;
        past.insert(past.end(), finished.output.begin(), finished.output.end());
        pasts.push_back(std::move(past));
      }
    }
    if (slow != nullptr) {
      transfers += slow->transfers();
      followed += slow->followed();
    }
    restored += static_cast<int>(cache.host_restores());
    paused += static_cast<int>(scheduler.counters().preemptions);
    cache.clear();
    expect_all_free(*engine);
    EXPECT_EQ(cache.host_bytes(), 0);
  }
  // Mostly, others go on while memory is on its way.
  if (setting.slow_transfers) {
    RecordProperty("transfers", std::to_string(transfers));
    RecordProperty("followed", std::to_string(followed));
    EXPECT_LT(followed, transfers / 2);
  }
  if (tests::kSanitized) return;  // one round need not come to everything
  EXPECT_GT(stopped, 0);
  if (setting.spare_pages < 0) {
    EXPECT_GT(reused, 0);
  }
  if (setting.host_bytes > 0) {
    EXPECT_GT(restored, 0);
  }
  if (setting.policy == SchedulePolicy::priority || setting.spare_pages >= 0) {
    EXPECT_GT(paused, 0);
  }
}

constexpr std::int64_t kHostBytes = 1 << 24;

INSTANTIATE_TEST_SUITE_P(
    Settings, CachedServing,
    ::testing::Values(
        Setting{.name = "gdn"}, Setting{.name = "kda", .model = kModelKinds[1]},
        Setting{.name = "gdn_bfloat16_states", .state = DType::bf16},
        Setting{.name = "kda_bfloat16_states",
                .model = kModelKinds[1],
                .state = DType::bf16,
                .host_bytes = kHostBytes,
                .sanitized = true},
        Setting{.name = "L8_small_steps",
                .fold_block = 8,
                .track_interval = 8,
                .step_tokens = 7,
                .sanitized = true},
        Setting{.name = "L32", .fold_block = 32, .track_interval = 96},
        Setting{.name = "host_memory", .host_bytes = kHostBytes},
        Setting{.name = "priorities", .policy = SchedulePolicy::priority},
        Setting{.name = "priorities_kda_host",
                .model = kModelKinds[1],
                .host_bytes = kHostBytes,
                .policy = SchedulePolicy::priority},
        Setting{.name = "few_pages", .spare_pages = 2},
        Setting{.name = "ngram_kda_host_priorities",
                .model = kModelKinds[1],
                .host_bytes = kHostBytes,
                .policy = SchedulePolicy::priority,
                .drafter = SpeculativeAlgorithm::ngram},
        Setting{.name = "ngram_few_pages",
                .fold_block = 8,
                .drafter = SpeculativeAlgorithm::ngram,
                .spare_pages = 2},
        Setting{.name = "draft_head_host",
                .host_bytes = kHostBytes,
                .drafter = SpeculativeAlgorithm::mtp},
        Setting{.name = "dflash2_host", .host_bytes = kHostBytes, .block_drafter = &kDFlash2},
        Setting{.name = "dspark_few_pages",
                .fold_block = 8,
                .block_drafter = &kDSparkGated,
                .spare_pages = 2},
        Setting{.name = "draft_head_few_pages",
                .policy = SchedulePolicy::priority,
                .drafter = SpeculativeAlgorithm::mtp,
                .spare_pages = 2,
                .sanitized = true},
        Setting{.name = "few_pages_kda_host",
                .model = kModelKinds[1],
                .host_bytes = kHostBytes,
                .spare_pages = 2,
                .sanitized = true},
        Setting{.name = "few_pages_replay_off", .recurrence = Recurrence::packed, .spare_pages = 2},
        Setting{.name = "slow_transfers", .host_bytes = kHostBytes, .slow_transfers = true},
        Setting{.name = "slow_transfers_kda_priorities",
                .model = kModelKinds[1],
                .state = DType::bf16,
                .host_bytes = kHostBytes,
                .policy = SchedulePolicy::priority,
                .slow_transfers = true,
                .sanitized = true},
        Setting{.name = "slow_transfers_few_pages",
                .fold_block = 8,
                .host_bytes = kHostBytes,
                .spare_pages = 2,
                .slow_transfers = true},
        Setting{.name = "slow_transfers_draft_head",
                .host_bytes = kHostBytes,
                .drafter = SpeculativeAlgorithm::mtp,
                .slow_transfers = true},
        Setting{.name = "replay_off", .recurrence = Recurrence::packed},
        Setting{.name = "replay_off_priorities",
                .recurrence = Recurrence::packed,
                .host_bytes = kHostBytes,
                .policy = SchedulePolicy::priority},
        Setting{.name = "cuda_host_priorities",
                .host_bytes = kHostBytes,
                .policy = SchedulePolicy::priority,
                .device = DeviceKind::cuda},
        Setting{.name = "cuda_host_unpoisoned",
                .host_bytes = kHostBytes,
                .device = DeviceKind::cuda,
                .poison = Poison::off},
        Setting{.name = "cuda_bfloat16_states_few_pages",
                .state = DType::bf16,
                .spare_pages = 2,
                .device = DeviceKind::cuda},
        Setting{.name = "cuda_ngram_host",
                .host_bytes = kHostBytes,
                .drafter = SpeculativeAlgorithm::ngram,
                .device = DeviceKind::cuda},
        Setting{.name = "cuda_draft_head_host",
                .host_bytes = kHostBytes,
                .drafter = SpeculativeAlgorithm::mtp,
                .device = DeviceKind::cuda},
        Setting{.name = "cuda_dflash_host",
                .host_bytes = kHostBytes,
                .drafter = SpeculativeAlgorithm::dflash,
                .device = DeviceKind::cuda},
        Setting{.name = "cuda_dspark_few_pages",
                .state = DType::bf16,
                .drafter = SpeculativeAlgorithm::dspark,
                .spare_pages = 2,
                .device = DeviceKind::cuda},
        Setting{.name = "cuda_replay_off",
                .recurrence = Recurrence::packed,
                .device = DeviceKind::cuda}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace replayssm
