#include "selftest_run.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "cache/byte_stream.h"
#include "cache/sequence_image.h"

namespace replayssm::cli {

void CheckList::add(const Check& check) {
  // Wide enough for every check there is.
  const auto line = [](std::string_view what, std::string_view compared, std::string_view measured,
                       std::string_view limit, std::string_view verdict) {
    fmt::print("{:<38}  {:<34}  {:<36}  {:<13}  {}\n", what, compared, measured, limit, verdict);
    std::fflush(stdout);
  };
  if (made_ == 0) {
    line("check", "compared", "measured", "limit", "pass");
    fmt::print("{:-<38}  {:-<34}  {:-<36}  {:-<13}  ----\n", "", "", "", "");
  }
  if (check.shown_only) {
    line(check.what, check.compared, check.measured, "shown only", "-");
    return;
  }
  ++made_;
  passed_ += check.passed ? 1 : 0;
  line(check.what, check.compared, check.measured, check.limit, check.passed ? "PASS" : "FAIL");
}

Result<Run> start_run(Engine& engine, const std::vector<TokenId>& tokens) {
  auto sequence = engine.admit(tokens, SamplingParams{});
  if (!sequence) return sequence.error();
  return Run{std::move(*sequence), {}};
}

Status run_step(Engine& engine, std::span<const Part> given, const LogitsSink& sink) {
  // Windows first, as the scheduler has them.
  std::vector<Part> parts(given.begin(), given.end());
  std::stable_partition(parts.begin(), parts.end(),
                        [](const Part& part) { return part.phase != Phase::prefill; });
  std::vector<StepRow> rows;
  for (const Part& part : parts) {
    rows.push_back({&part.run->sequence, part.tokens, part.phase, part.tokens});
    REPLAYSSM_TRY(engine.prepare(rows.back()));
  }
  const auto logits = engine.runner().evaluate(rows);
  if (!logits) return logits.error();
  int row = 0;
  for (const Part& part : parts) {
    for (int i = 0; i < part.tokens; ++i, ++row) {
      const std::span<const float> at = engine.runner().logits_row(*logits, row);
      // Two NaNs have equal bits and prove nothing.
      if (!std::all_of(at.begin(), at.end(), [](float x) { return std::isfinite(x); })) {
        return Error{fmt::format("the logits of position {} are not finite",
                                 part.run->sequence.evaluated() + i)};
      }
      part.run->logits_hashes.push_back(XXH3_64bits(at.data(), at.size_bytes()));
      if (sink) sink(*part.run, part.run->sequence.evaluated() + i, at);
    }
  }
  return engine.runner().commit();
}

Status run_chunks(Engine& engine, Run& run, int until, int chunk, const LogitsSink& sink) {
  while (run.sequence.evaluated() < until) {
    const int left = std::min(until - run.sequence.evaluated(), engine.runner().limits().chunk);
    const Part part{&run, chunk > 0 ? std::min(chunk, left) : left, Phase::prefill};
    REPLAYSSM_TRY(run_step(engine, {&part, 1}, sink));
  }
  return {};
}

Status run_decode(Engine& engine, Run& run, int until, const LogitsSink& sink) {
  while (run.sequence.evaluated() < until) {
    const Part part{&run, 1, Phase::decode};
    REPLAYSSM_TRY(run_step(engine, {&part, 1}, sink));
  }
  return {};
}

Result<std::vector<std::byte>> memory_bytes(Engine& engine, const Run& run) {
  ByteWriter out;
  REPLAYSSM_TRY(write_image(engine.memory(), run.sequence.memory, engine.ops(), out));
  return std::move(out).take();
}

std::string Difference::text() const {
  return fmt::format("{} of {} positions differ, {}", positions, of_positions,
                     memory ? "memory differs" : "memory equal");
}

Difference difference(const Run& expected, std::span<const std::byte> expected_memory,
                      const Run& found, std::span<const std::byte> found_memory) {
  Difference result;
  const auto& a = expected.logits_hashes;
  const auto& b = found.logits_hashes;
  result.of_positions = static_cast<int>(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size() || a[i] != b[i]) ++result.positions;
  }
  result.memory = !std::equal(expected_memory.begin(), expected_memory.end(), found_memory.begin(),
                              found_memory.end());
  return result;
}

}  // namespace replayssm::cli
