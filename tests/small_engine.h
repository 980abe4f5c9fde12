// An engine on a small random checkpoint, for tests of what surrounds the model.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_device.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "rounds.h"
#include "source_dir.h"

namespace replayssm {

inline std::filesystem::path small_checkpoint(const char* name = "ratio1_float32_flat_tied") {
  return source_dir() / "tests/data/model" / name;
}

// A model with one gate for each head and one with a gate for each key channel.
inline constexpr const char* kModelKinds[] = {"ratio1_float32_flat_tied",
                                              "kda_hybrid_bfloat16_tied"};

// Deterministic, float32, poisoned pools, one thread; change what the test is about. The number of
// threads changes no bit: ThreadSanitizer gets several to look at.
inline EngineOptions small_options() {
  EngineOptions options;
  options.model_path = small_checkpoint();
  options.activations = DType::f32;
  options.deterministic = true;
  options.threads = tests::kThreadSanitizer ? 3 : 1;
  options.max_running_requests = 4;
  options.context_length = 256;
  options.step_tokens = 64;
  options.logit_rows = 64;
  options.poison = Poison::on;
  return options;
}

// The same on a GPU, with the model that comes with the program: the kernels there are not built
// for the shapes of the small checkpoints.
inline EngineOptions on_gpu(EngineOptions options) {
  options.device = DeviceKind::cuda;
  options.model_path = source_dir() / "models" / "tiny";
  options.activations.reset();
  options.memory_budget = std::int64_t{2} << 30;
  return options;
}

// Why nothing can run on a GPU here; empty where it can.
inline std::string no_gpu() {
  const auto device = make_cuda_device();
  return device.ok() ? "" : device.error().message;
}

inline std::unique_ptr<Engine> make_engine(const EngineOptions& options,
                                           const DeviceMaker& maker = make_device) {
  auto engine = Engine::create(options, maker);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return std::move(*engine);
}

// The options with a budget that leaves exactly so many KV pages, at least those of one context.
inline EngineOptions with_pages(EngineOptions options, int pages) {
  options.memory_budget = 0;
  const auto engine = make_engine(options);
  if (!engine) return options;
  options.memory_budget =
      engine->plan().used - (engine->plan().pages - pages) * engine->memory().layout().page_bytes();
  return options;
}

inline std::vector<TokenId> random_prompt(const Engine& engine, int tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt;
  for (int i = 0; i < tokens; ++i) {
    prompt.push_back(
        static_cast<TokenId>(random() % static_cast<unsigned long>(engine.config().vocab_size)));
  }
  return prompt;
}

inline SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// Runs everything submitted to its end; finished choices in the order of their requests, their
// sequences dropped unless `keep`.
inline std::vector<Finished> run_all(Scheduler& scheduler, bool keep = false) {
  std::vector<Finished> all;
  while (!scheduler.idle()) {
    auto events = scheduler.step();
    if (!events.ok()) {
      ADD_FAILURE() << events.error().message;
      break;
    }
    for (Finished& finished : events->finished) {
      if (!keep) finished.sequence = Sequence{};
      all.push_back(std::move(finished));
    }
  }
  std::sort(all.begin(), all.end(), [](const Finished& a, const Finished& b) {
    return std::pair(a.request, a.choice) < std::pair(b.request, b.choice);
  });
  return all;
}

// The greedy continuation of a prompt on an engine of its own.
inline std::vector<TokenId> solo(const EngineOptions& options, const std::vector<TokenId>& prompt,
                                 int tokens) {
  const auto engine = make_engine(options);
  if (!engine) return {};
  Scheduler scheduler(*engine);
  const auto id = scheduler.submit({prompt, greedy(), tokens, true});
  if (!id.ok()) {
    ADD_FAILURE() << id.error().message;
    return {};
  }
  auto finished = run_all(scheduler);
  return finished.empty() ? std::vector<TokenId>{} : finished.front().output;
}

// The different outputs of so many equal greedy requests, `stagger` of them submitted a step.
inline std::set<std::vector<TokenId>> answers(const EngineOptions& options, int requests,
                                              int stagger) {
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  const auto prompt = random_prompt(*engine, 33, 1);
  std::set<std::vector<TokenId>> outputs;
  std::size_t finished = 0;
  for (int submitted = 0; finished < static_cast<std::size_t>(requests);) {
    for (int i = 0; i < std::max(stagger, 1) && submitted < requests; ++i, ++submitted) {
      EXPECT_TRUE(scheduler.submit({prompt, greedy(), 40, true}).ok());
    }
    auto events = scheduler.step();
    if (!events.ok()) {
      ADD_FAILURE() << events.error().message;
      break;
    }
    for (const Finished& each : events->finished) {
      outputs.insert(each.output);
      ++finished;
    }
  }
  return outputs;
}

// Nothing is held by anybody.
inline void expect_all_free(Engine& engine) {
  EXPECT_EQ(engine.memory().rows().used(), 0);
  EXPECT_EQ(engine.memory().slots().used(), 0);
  EXPECT_EQ(engine.memory().pages().used(), 0);
}

}  // namespace replayssm
