// Cold equals everything: however a sequence came to where it is, it holds the same bytes and says
// the same tokens as one that was evaluated from the start. Hits at every depth that an entry
// serves, from the pools and from the host, forks, pauses, chunk sizes, batch mates; both gates,
// both state formats, every fold block; on a GPU, too, where there is one. Memory that nobody may
// read is NaN.
#include <gtest/gtest.h>

#include <string>

#include "cached_engine.h"

namespace replayssm {
namespace {

constexpr int kText = 110;  // tokens of the text
constexpr int kEnd = 128;   // and of what is decoded after it
constexpr int kChunks[] = {1, 63, 64, 65};
constexpr int kBatches[] = {1, 3, 8};

struct Setting {
  std::string name;
  const char* model;
  DType state;
  int fold_block;
  DeviceKind device = DeviceKind::cpu;
};

class ColdEquality : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (on_cuda()) {
      const std::string absent = no_gpu();
      if (!absent.empty()) GTEST_SKIP() << absent;
    }
    engine_ = make_engine(options());
    ASSERT_NE(engine_, nullptr);
    text_ = random_prompt(*engine_, kText, 1);
    for (unsigned i = 0; i < 8; ++i) mates_.push_back(random_prompt(*engine_, 40, 100 + i));
  }

  static bool on_cuda() { return GetParam().device == DeviceKind::cuda; }

  static EngineOptions options() {
    EngineOptions options = small_options();
    options.model_path = small_checkpoint(GetParam().model);
    options.state_type = GetParam().state;
    options.fold_block = GetParam().fold_block;
    options.max_running_requests = 8;
    options.kept_sequences_least = 8;
    options.step_tokens = 128;
    options.logit_rows = 16;
    return on_cuda() ? on_gpu(options) : options;
  }

  Sequence sequence_of(std::vector<TokenId> tokens, Residence resumed = {}) {
    auto sequence = engine_->admit(std::move(tokens), greedy(), std::move(resumed));
    EXPECT_TRUE(sequence.ok()) << (sequence.ok() ? "" : sequence.error().message);
    return std::move(*sequence);
  }

  // Until so many tokens are evaluated: the prompt in chunks of at most `chunk`, then one by one.
  // Among `batch` - 1 others, each at another place of its own text.
  void run(Sequence& sequence, int until, int chunk, int batch = 1) {
    std::vector<Sequence> others;
    for (int i = 1; i < batch; ++i) {
      others.push_back(sequence_of(mates_[static_cast<std::size_t>(i)]));
    }
    for (int steps = 0; sequence.evaluated() < until; ++steps) {
      std::vector<StepRow> rows;
      for (std::size_t i = 0; i < others.size(); ++i) {
        // Not every one in every step; the looked-at row comes neither first nor last.
        if ((steps + static_cast<int>(i)) % 3 == 0 || others[i].evaluated() > 60) continue;
        if (rows.size() == 1) rows.push_back(row_of(sequence, until, chunk));
        rows.push_back(Engine::next_row(others[i], 5));
      }
      if (rows.size() < 2) rows.push_back(row_of(sequence, until, chunk));
      // Windows before chunks, as the scheduler has them.
      std::stable_partition(rows.begin(), rows.end(),
                            [](const StepRow& row) { return row.phase != Phase::prefill; });
      for (const StepRow& row : rows) ASSERT_TRUE(engine_->prepare(row).ok());
      const auto results = engine_->step(rows);
      ASSERT_TRUE(results.ok()) << results.error().message;
    }
  }
  static StepRow row_of(Sequence& sequence, int until, int chunk) {
    return Engine::next_row(sequence, std::min(chunk, until - sequence.evaluated()));
  }

  // From where it stands to the end of the text and beyond; then as the cold one.
  void expect_as_cold(Sequence sequence, const std::string& how) {
    const int chunk = kChunks[runs_ % std::size(kChunks)];
    const int batch = kBatches[runs_ / std::size(kChunks) % std::size(kBatches)];
    ++runs_;
    run(sequence, kEnd, chunk, batch);
    EXPECT_EQ(sequence.tokens, cold_tokens_) << how << ", chunk " << chunk << ", batch " << batch;
    EXPECT_TRUE(memory_of(*engine_, sequence) == cold_memory_)
        << how << ", chunk " << chunk << ", batch " << batch << ": memory differs";
  }

  void make_cold() {
    Sequence cold = sequence_of(text_);
    run(cold, kEnd, kText);
    ASSERT_EQ(cold.evaluated(), kEnd);
    cold_tokens_ = cold.tokens;
    cold_memory_ = memory_of(*engine_, cold);
  }

  std::vector<int> depths() const {
    const int l = GetParam().fold_block;
    if (tests::kSanitized) return {l, 77};
    return {1, l - 1, l, l + 1, 2 * l, 2 * l + 1, 77, kText - 1};
  }

  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> text_;
  std::vector<std::vector<TokenId>> mates_;
  std::vector<TokenId> cold_tokens_;
  std::vector<std::byte> cold_memory_;
  std::size_t runs_ = 0;
};

TEST_P(ColdEquality, ChunksAndBatches) {
  make_cold();
  for (int i = 0; i < 12; ++i) expect_as_cold(sequence_of(text_), "cold");
}

TEST_P(ColdEquality, HitsAtEveryDepthThatAnEntryServes) {
  make_cold();
  for (const bool host : {false, true}) {
    for (const int d : depths()) {
      for (const bool with_records : {true, false}) {
        for (const int back : {0, 1, 2}) {
          PrefixCache cache(engine_->memory(), engine_->ops(), {8, host ? 1 << 26 : 0});
          int c = 0;
          {
            Sequence first = sequence_of(first_tokens(text_, d));
            run(first, d, 7);
            c = first.memory.cursor().checkpoint.tokens;
            if (with_records) {
              ASSERT_TRUE(cache.keep(first_tokens(text_, d), std::move(first.memory)));
            } else if (c > 0) {
              auto kept = engine_->memory().checkpoint_of(first.memory);
              ASSERT_TRUE(kept.ok());
              ASSERT_TRUE(cache.keep(first_tokens(text_, c), std::move(*kept)));
            }
          }
          if (host && !cache.entries().empty()) {
            ASSERT_TRUE(cache.evict_one());
            ASSERT_TRUE(cache.entries().front().on_host);
            EXPECT_EQ(engine_->memory().slots().used(), 0);
          }
          const auto match = cache.find(text_, d - back);
          // d and d - 1 where there are records, else what lies at or before the checkpoint.
          const int expected = with_records && back < 2 ? d - back : c <= d - back ? c : 0;
          ASSERT_EQ(match.tokens, expected) << "d " << d << " c " << c << " back " << back;
          if (match.tokens == 0) continue;
          auto resumed = cache.resume(match);
          ASSERT_TRUE(resumed.ok()) << resumed.error().message;
          EXPECT_EQ(resumed->cursor().committed.tokens, match.tokens);
          expect_as_cold(
              sequence_of(text_, std::move(*resumed)),
              fmt::format("hit at {} of an entry of {} (checkpoint {}){}{}", match.tokens, d, c,
                          with_records ? "" : " without records", host ? " from the host" : ""));
        }
      }
    }
  }
  expect_all_free(*engine_);
}

// Two readers of one entry and the entry itself, which stays what it is.
TEST_P(ColdEquality, ForksOfAnEntryThatIsReadTwice) {
  make_cold();
  PrefixCache cache(engine_->memory(), engine_->ops(), {8, 0});
  Sequence first = sequence_of(first_tokens(text_, 77));
  run(first, 77, 64);
  auto fork = engine_->memory().fork(first.memory);
  ASSERT_TRUE(fork.ok());
  ASSERT_TRUE(cache.keep(first_tokens(text_, 77), std::move(*fork)));
  first = Sequence{};
  for (int i = 0; i < 3; ++i) {
    auto one = cache.resume(cache.find(text_, kText));
    auto two = cache.resume(cache.find(text_, 76));
    ASSERT_TRUE(one.ok() && two.ok());
    Sequence stranger = sequence_of(joined(first_tokens(text_, 76), mates_[0]), std::move(*two));
    run(stranger, 76 + 40, 9);
    expect_as_cold(sequence_of(text_, std::move(*one)), "fork of an entry");
  }
}

TEST_P(ColdEquality, APauseAtAnyDepthThroughAnArchive) {
  make_cold();
  for (const int d : {1, 33, 77, kText - 1, kText + 3, kText + 9}) {
    Sequence sequence = sequence_of(text_);
    run(sequence, d, 64);
    const auto archive = engine_->pause(sequence);
    ASSERT_TRUE(archive.ok());
    sequence = Sequence{};
    auto resumed = engine_->resume(*archive);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    expect_as_cold(std::move(*resumed), fmt::format("pause at {}", d));
  }
}

// Through the scheduler: checkpoints along the way, pauses through the cache, n > 1. Tokens only;
// the memory of what runs there is the scheduler's own.
TEST_P(ColdEquality, TrackedCheckpointsPausesAndChoicesThroughTheScheduler) {
  const EngineOptions options = this->options();
  const auto expected = solo(options, text_, 18);
  for (const std::int64_t host_bytes : {std::int64_t{0}, std::int64_t{1} << 26}) {
    EngineOptions tight = options;
    tight.max_running_requests = 2;
    tight.kept_sequences_least = 12;
    CachedEngine cached(tight, 32, host_bytes, SchedulePolicy::priority);
    for (int at = 8; at < kText; at += 17) {
      const auto own = joined(first_tokens(text_, at), {1, 2, 3});
      EXPECT_EQ(cached.ask(own, 6).output, solo(options, own, 6));
    }
    EXPECT_EQ(cached.ask(text_, 18).output, expected);
    GenerationRequest request{text_, greedy(), 18, true};
    request.choices = 2;
    ASSERT_TRUE(cached.scheduler->submit(request).ok());
    int outputs = 0;
    for (int steps = 0; !cached.scheduler->idle(); ++steps) {
      if (steps % 5 == 3 && steps < 30) {  // pauses a choice, in prefill or while it decodes
        GenerationRequest urgent{cached.prompt(30, static_cast<unsigned>(steps)), greedy(), 3,
                                 true};
        urgent.priority = 1;
        ASSERT_TRUE(cached.scheduler->submit(std::move(urgent)).ok());
      }
      const auto events = cached.scheduler->step();
      ASSERT_TRUE(events.ok());
      for (const Finished& finished : events->finished) {
        if (finished.prompt_tokens != kText) continue;
        EXPECT_EQ(finished.output, expected);
        ++outputs;
      }
    }
    EXPECT_EQ(outputs, 2);
    EXPECT_GT(cached.scheduler->counters().preemptions, 0);
    cached.expect_nothing_held();
  }
}

// Without --deterministic, in float32: the same tokens.
TEST_P(ColdEquality, WithoutDeterministicTokensAreEqualInFloat32) {
  if (on_cuda()) GTEST_SKIP() << "activations on a GPU are bfloat16";
  EngineOptions options = this->options();
  options.deterministic = false;
  CachedEngine cached(options, 32, 1 << 26);
  const auto expected = solo(options, text_, 18);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cached.ask(text_, 18).output, expected);
  for (unsigned i = 0; i < 20; ++i) cached.ask(cached.prompt(50, i), 3);
  EXPECT_EQ(cached.ask(text_, 18).output, expected);
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const int l : {8, 16, 32}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      for (const char* model : kModelKinds) {
        // Under sanitizers, where they take thirty times as long, one of them.
        const bool kda = model == kModelKinds[1];
        if (tests::kSanitized && !(l == 16 && kda && state == DType::bf16)) continue;
        all.push_back({fmt::format("{}_{}_L{}", model == kModelKinds[0] ? "gdn" : "kda",
                                   state == DType::f32 ? "float32" : "bfloat16", l),
                       model, state, l});
      }
    }
  }
  all.push_back({"cuda_float32_L16", "", DType::f32, 16, DeviceKind::cuda});
  all.push_back({"cuda_bfloat16_L8", "", DType::bf16, 8, DeviceKind::cuda});
  all.push_back({"cuda_float32_L32", "", DType::f32, 32, DeviceKind::cuda});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Settings, ColdEquality, ::testing::ValuesIn(settings()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace replayssm
