#include "selftest_cache.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "cache/prefix_cache.h"
#include "engine/scheduler.h"

namespace replayssm::cli {
namespace {

constexpr int kEntryDepth = 77;  // inside a page and inside a block of 8, 16 and 32
constexpr std::int64_t kHostBytes = std::int64_t{1} << 34;  // no limit here
constexpr int kOutputs = 26;

// An entry of the text's first kEntryDepth tokens, as another sequence would have left it.
Status keep_entry(Engine& engine, const ColdRun& cold, PrefixCache& cache) {
  auto run = start_run(engine, {cold.text.begin(), cold.text.begin() + kEntryDepth});
  if (!run) return run.error();
  REPLAYSSM_TRY(run_chunks(engine, *run, kEntryDepth, 30));
  if (!cache.keep(run->sequence.tokens, std::move(run->sequence.memory))) {
    return Error{"prefix cache: a sequence was not kept"};
  }
  return {};
}

// Resumes after so many tokens and goes on to the end of the text.
Status check_hit(Engine& engine, const ColdRun& cold, PrefixCache& cache, int depth,
                 const std::string& name, CheckList& checks) {
  const PrefixCache::Match match = cache.find(cold.text, depth);
  if (match.tokens != depth) {
    checks.add({name, "tokens reused", std::to_string(match.tokens), std::to_string(depth), false});
    return {};
  }
  auto resumed = cache.resume(match);
  if (!resumed) return resumed.error();
  auto sequence = engine.admit(cold.text, SamplingParams{}, std::move(*resumed));
  if (!sequence) return sequence.error();
  const auto& known = cold.run.logits_hashes;
  Run run{std::move(*sequence), {known.begin(), known.begin() + depth}};
  REPLAYSSM_TRY(run_chunks(engine, run, cold.prompt_tokens, 20));
  REPLAYSSM_TRY(run_decode(engine, run, static_cast<int>(cold.text.size())));
  const auto memory = memory_bytes(engine, run);
  if (!memory) return memory.error();
  const Difference found = difference(cold.run, cold.memory, run, *memory);
  checks.add({name, "bits of logits and memory", found.text(), "equal", !found.any()});
  return {};
}

// The greedy continuations of the text's prompt, by choice.
struct Served {
  std::vector<std::vector<TokenId>> outputs;
  std::int64_t preemptions = 0;
  std::int64_t host_restores = 0;
  int ahead = 0;  // steps that were launched before the one before them was taken
};

// `urgent`: after so many steps a request of higher priority comes, which pauses what runs.
Result<Served> serve(Engine& engine, const ColdRun& cold, const std::vector<TokenId>& other,
                     int choices, std::optional<int> urgent, std::int64_t host_bytes,
                     Overlap overlap = Overlap::always) {
  PrefixCache cache(engine.memory(), engine.ops(), {engine.plan().kept_rows, host_bytes});
  SchedulerOptions options;
  options.policy = SchedulePolicy::priority;
  options.cache = &cache;
  options.track_interval = 2 * engine.options().fold_block;
  options.overlap = overlap;
  Scheduler scheduler(engine, options);
  GenerationRequest request;
  request.prompt.assign(cold.text.begin(), cold.text.begin() + cold.prompt_tokens);
  request.sampling.temperature = 0;
  request.max_tokens = kOutputs;
  request.ignore_eos = true;
  request.choices = choices;
  request.branch_points = {25, 60, 110};  // chunks end there, so that the prefill takes some steps
  const auto id = scheduler.submit(std::move(request));
  if (!id) return id.error();
  Served served;
  served.outputs.resize(static_cast<std::size_t>(choices));
  for (int step = 0; !scheduler.idle(); ++step) {
    if (urgent == step) {
      GenerationRequest first;
      first.prompt.assign(other.begin(), other.begin() + cold.prompt_tokens);
      first.max_tokens = 4;
      first.ignore_eos = true;
      first.priority = 1;
      first.choices = engine.plan().rows;  // so that nothing else has a place
      const auto queued = scheduler.submit(std::move(first));
      if (!queued) return queued.error();
    }
    const auto events = scheduler.step();
    if (!events) return events.error();
    served.ahead += engine.launched().empty() ? 0 : 1;
    for (const Finished& finished : events->finished) {
      if (finished.error) return *finished.error;
      if (finished.request != *id) continue;
      served.outputs[static_cast<std::size_t>(finished.choice)] = finished.output;
    }
    // What is paused goes out to the host meanwhile.
    while (host_bytes > 0 && scheduler.waiting() > 0 && cache.evict_one()) {
    }
  }
  served.preemptions = scheduler.counters().preemptions;
  served.host_restores = cache.host_restores();
  return served;
}

}  // namespace

Status check_cache_hits(Engine& engine, const ColdRun& cold, CheckList& checks) {
  for (const bool host : {false, true}) {
    PrefixCache cache(engine.memory(), engine.ops(),
                      {engine.plan().kept_rows, host ? kHostBytes : 0});
    REPLAYSSM_TRY(keep_entry(engine, cold, cache));
    const int checkpoint = cache.entries().front().cursor.checkpoint.tokens;
    for (const auto& [depth, what] :
         {std::pair(kEntryDepth, "d"), std::pair(kEntryDepth - 1, "d - 1"),
          std::pair(checkpoint, "its checkpoint")}) {
      while (host && cache.evict_one()) {
      }
      REPLAYSSM_TRY(check_hit(
          engine, cold, cache, depth,
          fmt::format("{} at {} = {}", host ? "host restore" : "cache hit", what, depth), checks));
    }
  }
  return {};
}

Status check_cached_serving(Engine& engine, const ColdRun& cold, const std::vector<TokenId>& other,
                            CheckList& checks) {
  const auto alone = serve(engine, cold, other, 1, std::nullopt, 0, Overlap::off);
  if (!alone) return alone.error();
  const std::vector<TokenId>& expected = alone->outputs.front();
  const auto add = [&](const std::string& what, const Served& served, bool happened) {
    const auto equal = std::count(served.outputs.begin(), served.outputs.end(), expected);
    const auto choices = static_cast<std::ptrdiff_t>(served.outputs.size());
    checks.add({what, "choices with equal tokens", fmt::format("{} of {}", equal, choices),
                happened ? "all" : "did not happen", happened && equal == choices});
  };
  if (engine.options().overlap) {
    const auto ahead = serve(engine, cold, other, 1, std::nullopt, 0);
    if (!ahead) return ahead.error();
    add("steps launched ahead", *ahead, ahead->ahead > 0 && alone->ahead == 0);
  }
  const auto together = serve(engine, cold, other, 4, std::nullopt, 0);
  if (!together) return together.error();
  add("n = 4 against n = 1", *together, true);
  for (const std::int64_t host_bytes : {std::int64_t{0}, kHostBytes}) {
    // The prompt takes between 5 and 13 steps, whatever the fold block.
    for (const int step : {2, 20}) {
      const auto paused = serve(engine, cold, other, 2, step, host_bytes);
      if (!paused) return paused.error();
      add(fmt::format("pause in {} through {}", step == 2 ? "prefill" : "decode",
                      host_bytes > 0 ? "the host" : "the cache"),
          *paused, paused->preemptions > 0 && (host_bytes == 0 || paused->host_restores > 0));
    }
  }
  return {};
}

}  // namespace replayssm::cli
