#include "selftest_bits.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "selftest_cache.h"

namespace replayssm::cli {
namespace {

constexpr int kForkDepth = 77;    // inside a page and inside a block of 8, 16 and 32
constexpr int kPauseDepth = 157;  // likewise, while decoding

// What every other way through the same text is compared with.
struct Baseline {
  Run run;
  std::vector<std::byte> memory;
};

EngineOptions sized(EngineOptions options, int requests, int window_max) {
  options.deterministic = true;
  options.max_running_requests = requests;
  options.window_max = window_max;
  options.context_length = kBitsTokens;
  options.step_tokens = kBitsTokens + requests * window_max;
  options.logit_rows = options.step_tokens;
  return options;
}

// Alone, the prompt in one chunk, then token by token.
Result<Baseline> baseline(Engine& engine, const std::vector<TokenId>& text) {
  auto run = start_run(engine, text);
  if (!run) return run.error();
  REPLAYSSM_TRY(run_chunks(engine, *run, kBitsPrompt, 0));
  REPLAYSSM_TRY(run_decode(engine, *run, kBitsTokens));
  auto memory = memory_bytes(engine, *run);
  if (!memory) return memory.error();
  run->sequence.memory = Residence();
  return Baseline{std::move(*run), std::move(*memory)};
}

Status add_check(Engine& engine, std::string what, const Baseline& expected, const Run& run,
                 CheckList& checks) {
  const auto memory = memory_bytes(engine, run);
  if (!memory) return memory.error();
  const Difference found = difference(expected.run, expected.memory, run, *memory);
  checks.add({std::move(what), "bits of logits and memory", found.text(), "equal", !found.any()});
  return {};
}

Status check_chunks(Engine& engine, const std::vector<TokenId>& text, const Baseline& expected,
                    std::span<const int> sizes, const std::string& name, CheckList& checks) {
  for (const int size : sizes) {
    auto run = start_run(engine, text);
    if (!run) return run.error();
    REPLAYSSM_TRY(run_chunks(engine, *run, kBitsPrompt, size));
    REPLAYSSM_TRY(run_decode(engine, *run, kBitsTokens));
    REPLAYSSM_TRY(
        add_check(engine, fmt::format("{}, chunks of {}", name, size), expected, *run, checks));
  }
  return {};
}

// Windows of 1 .. T_max tokens, all accepted, as in verification; the last tokens one by one, so
// that the sequence comes to rest as the baseline did.
Status check_windows(Engine& engine, const std::vector<TokenId>& text, const Baseline& expected,
                     CheckList& checks) {
  auto run = start_run(engine, text);
  if (!run) return run.error();
  const int largest = engine.options().window_max;
  REPLAYSSM_TRY(run_chunks(engine, *run, 5, 0));
  for (int size = 1; run->sequence.evaluated() < kBitsPrompt; size = size % largest + 1) {
    const Part part{&*run, size, Phase::verify};
    REPLAYSSM_TRY(run_step(engine, {&part, 1}));
  }
  REPLAYSSM_TRY(run_decode(engine, *run, kBitsTokens));
  return add_check(engine, fmt::format("windows of 1 to {}", largest), expected, *run, checks);
}

// `count` sequences at different positions, prompts and decodes in the same steps; the first is
// compared.
Status check_batch(Engine& engine, const Texts& texts, const Baseline& expected, int count,
                   CheckList& checks) {
  std::vector<Run> runs;
  for (int i = 0; i < count; ++i) {
    // The text that is looked at comes last in the batch, and its mates are ahead of it.
    const bool last = i == count - 1;
    auto run = start_run(engine, texts[last ? 0 : 1 + static_cast<std::size_t>(i) % 2]);
    if (!run) return run.error();
    runs.push_back(std::move(*run));
    if (!last) REPLAYSSM_TRY(run_chunks(engine, runs.back(), 3 + 13 * i, 0));
  }
  Run& looked_at = runs.back();
  for (int step = 0; looked_at.sequence.evaluated() < kBitsTokens; ++step) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      Run& run = runs[i];
      const int left = kBitsTokens - run.sequence.evaluated();
      if (left == 0) continue;
      const bool prompt = run.sequence.evaluated() < kBitsPrompt;
      if (&run == &looked_at) {
        const int chunk = std::min(40, kBitsPrompt - run.sequence.evaluated());
        parts.push_back({&run, prompt ? chunk : 1, prompt ? Phase::prefill : Phase::decode});
      } else if ((step + static_cast<int>(i)) % 3 != 0) {
        const bool chunk = prompt && i % 2 == 0;
        parts.push_back(
            {&run, chunk ? std::min(5, left) : 1, chunk ? Phase::prefill : Phase::decode});
      }
    }
    REPLAYSSM_TRY(run_step(engine, parts));
  }
  return add_check(engine, fmt::format("batch of {} against alone", count), expected, looked_at,
                   checks);
}

// A fork and its parent both go on with the same text, a second fork with another one first.
Status check_fork(Engine& engine, const Texts& texts, const Baseline& expected, CheckList& checks) {
  auto parent = start_run(engine, texts[0]);
  if (!parent) return parent.error();
  REPLAYSSM_TRY(run_chunks(engine, *parent, kForkDepth, 0));
  const auto fork = [&]() -> Result<Run> {
    auto sequence = engine.fork(parent->sequence, 0);
    if (!sequence) return sequence.error();
    return Run{std::move(*sequence), parent->logits_hashes};
  };
  auto stranger = fork();
  auto child = fork();
  if (!stranger) return stranger.error();
  if (!child) return child.error();
  const int shared = engine.memory().slots().used();
  // The stranger's text differs from the fork on; its folds must not reach the others.
  std::copy(texts[1].begin() + kForkDepth, texts[1].begin() + kBitsTokens,
            stranger->sequence.tokens.begin() + kForkDepth);
  REPLAYSSM_TRY(run_decode(engine, *stranger, kBitsTokens));
  REPLAYSSM_TRY(run_chunks(engine, *child, kBitsPrompt, 20));
  REPLAYSSM_TRY(run_chunks(engine, *parent, kBitsPrompt, 0));
  REPLAYSSM_TRY(run_decode(engine, *child, kBitsTokens));
  REPLAYSSM_TRY(run_decode(engine, *parent, kBitsTokens));
  checks.add(
      {"fork: slots of three before they fold", "count", std::to_string(shared), "1", shared == 1});
  REPLAYSSM_TRY(add_check(engine, "fork: child against unforked", expected, *child, checks));
  return add_check(engine, "fork: parent against unforked", expected, *parent, checks);
}

// Out to bytes in the middle of a block, another text through the same memory, and back.
Status check_pause(Engine& engine, const Texts& texts, const Baseline& expected,
                   CheckList& checks) {
  auto run = start_run(engine, texts[0]);
  if (!run) return run.error();
  REPLAYSSM_TRY(run_chunks(engine, *run, kBitsPrompt, 0));
  REPLAYSSM_TRY(run_decode(engine, *run, kPauseDepth));
  const auto archive = engine.pause(run->sequence);
  if (!archive) return archive.error();
  run->sequence = Sequence{};
  {
    auto other = start_run(engine, texts[2]);
    if (!other) return other.error();
    REPLAYSSM_TRY(run_chunks(engine, *other, kBitsTokens, 0));
  }
  auto resumed = engine.resume(*archive);
  if (!resumed) return resumed.error();
  run->sequence = std::move(*resumed);
  REPLAYSSM_TRY(run_decode(engine, *run, kBitsTokens));
  return add_check(engine,
                   fmt::format("pause and resume through {}",
                               format_bytes(static_cast<std::int64_t>(archive->size()))),
                   expected, *run, checks);
}

// With another number of threads; on a GPU, without graphs.
Status check_other_ways(const EngineOptions& options, int threads, const std::vector<TokenId>& text,
                        const Baseline& expected, CheckList& checks) {
  EngineOptions other = sized(options, 1, 1);
  std::string name = "kernel by kernel against graphs";
  if (options.device == DeviceKind::cuda) {
    other.graphs = false;
  } else {
    other.threads = threads == 1 ? 3 : 1;
    name = fmt::format("{} thread{} against {}", other.threads, other.threads == 1 ? "" : "s",
                       threads);
  }
  auto engine = Engine::create(other);
  if (!engine) return engine.error();
  auto run = start_run(**engine, text);
  if (!run) return run.error();
  REPLAYSSM_TRY(run_chunks(**engine, *run, kBitsPrompt, 0));
  REPLAYSSM_TRY(run_decode(**engine, *run, kBitsTokens));
  return add_check(**engine, name, expected, *run, checks);
}

}  // namespace

Status check_equal_bits(const EngineOptions& options, const Texts& texts, CheckList& checks) {
  static constexpr int kChunkSizes[] = {1, 7, 63, 64, 65};
  EngineOptions replay = sized(options, 8, 1);
  replay.recurrence = Recurrence::replay;
  const std::string name = fmt::format("replay, L = {}", options.fold_block);
  auto engine = Engine::create(replay);
  if (!engine) return engine.error();
  const auto expected = baseline(**engine, texts[0]);
  if (!expected) return expected.error();
  REPLAYSSM_TRY(check_chunks(**engine, texts[0], *expected, kChunkSizes, name, checks));
  REPLAYSSM_TRY(check_batch(**engine, texts, *expected, 3, checks));
  REPLAYSSM_TRY(check_batch(**engine, texts, *expected, 8, checks));
  REPLAYSSM_TRY(check_fork(**engine, texts, *expected, checks));
  REPLAYSSM_TRY(check_pause(**engine, texts, *expected, checks));

  EngineOptions with_cache = sized(replay, 4, 1);
  with_cache.kept_sequences_least = 8;
  auto cached = Engine::create(with_cache);
  if (!cached) return cached.error();
  const ColdRun cold{texts[0], expected->run, expected->memory, kBitsPrompt};
  REPLAYSSM_TRY(check_cache_hits(**cached, cold, checks));
  REPLAYSSM_TRY(check_cached_serving(**cached, cold, texts[1], checks));

  auto windows = Engine::create([&] {
    EngineOptions with_windows = sized(replay, 1, 8);
    return with_windows;
  }());
  if (!windows) return windows.error();
  REPLAYSSM_TRY(check_windows(**windows, texts[0], *expected, checks));

  REPLAYSSM_TRY(check_other_ways(replay, (*engine)->threads(), texts[0], *expected, checks));

  EngineOptions packed = sized(options, 1, 1);
  packed.recurrence = Recurrence::packed;
  auto off = Engine::create(packed);
  if (!off) return off.error();
  const auto off_expected = baseline(**off, texts[0]);
  if (!off_expected) return off_expected.error();
  static constexpr int kOffSizes[] = {1, 64};
  const bool token_by_token = (*off)->runner().limits().chunk == 1;
  REPLAYSSM_TRY(check_chunks(**off, texts[0], *off_expected,
                             std::span(kOffSizes).first(token_by_token ? 1 : 2), "replay off",
                             checks));
  const std::int64_t ring_bytes = (*off)->memory().rows().ring_bytes();
  checks.add({"replay off: record rings", "bytes allocated", std::to_string(ring_bytes), "0",
              ring_bytes == 0});
  return {};
}

}  // namespace replayssm::cli
