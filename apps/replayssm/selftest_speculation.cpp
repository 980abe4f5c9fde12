#include "selftest_speculation.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "cache/sequence_image.h"
#include "embedded_model.h"
#include "engine/memory_needs.h"
#include "engine/scheduler.h"
#include "model/weights.h"

namespace replayssm::cli {
namespace {

constexpr int kPrompt = 64;
constexpr int kDraftedOutputs = 160;

EngineOptions sized(EngineOptions options) {
  options.deterministic = true;
  options.max_running_requests = 2;  // the text that was drafted, and the one that is read
  options.context_length = kPrompt + kDraftedOutputs + 1;
  return options;
}

Result<Finished> generate(Engine& engine, const std::vector<TokenId>& text) {
  Scheduler scheduler(engine);
  GenerationRequest request;
  request.prompt.assign(text.begin(), text.begin() + kPrompt);
  request.sampling.temperature = 0;
  request.max_tokens = kDraftedOutputs;
  request.ignore_eos = true;
  const auto id = scheduler.submit(std::move(request));
  if (!id) return id.error();
  while (!scheduler.idle()) {
    auto events = scheduler.step();
    if (!events) return events.error();
    for (Finished& finished : events->finished) {
      if (finished.error) return *finished.error;
      return std::move(finished);
    }
  }
  return Error{"speculation: the request did not end"};
}

Status step(Engine& engine, Sequence& sequence) {
  const StepRow row = Engine::next_row(sequence, engine.options().step_tokens);
  REPLAYSSM_TRY(engine.prepare(row));
  const auto results = engine.step({&row, 1});
  if (!results) return results.error();
  if (results->front().error) return *results->front().error;
  return {};
}

Result<std::vector<std::byte>> bytes_of(Engine& engine, const Sequence& sequence) {
  ByteWriter out;
  REPLAYSSM_TRY(write_image(engine.memory(), sequence.memory, engine.ops(), out));
  return std::move(out).take();
}

// Every algorithm that the model has a drafter for, all drafts verified.
std::vector<SpeculationOptions> available(const std::filesystem::path& model) {
  std::vector<SpeculationOptions> all;
  const auto add = [&](SpeculativeAlgorithm algorithm, std::filesystem::path drafter) {
    SpeculationOptions& options = all.emplace_back();
    options.algorithm = algorithm;
    options.draft_model_path = std::move(drafter);
    options.step_rates = "none";
  };
  add(SpeculativeAlgorithm::ngram, {});
  if (has_draft_head(model)) add(SpeculativeAlgorithm::mtp, {});
  const auto embedded = embedded_model();
  if (!embedded || *embedded != model) return all;
  for (const SpeculativeAlgorithm algorithm :
       {SpeculativeAlgorithm::dflash, SpeculativeAlgorithm::dspark}) {
    auto drafter = embedded_drafter(algorithm);
    if (drafter) add(algorithm, std::move(*drafter));
  }
  return all;
}

// What the drafted sequence holds after one plain step more, against the same tokens as a prompt.
Result<bool> same_memory_as_read(Engine& engine, Sequence& drafted) {
  REPLAYSSM_TRY(step(engine, drafted));
  const auto evaluated = drafted.tokens.begin() + drafted.evaluated();
  auto read = engine.admit({drafted.tokens.begin(), evaluated}, drafted.sampling.params());
  if (!read) return read.error();
  while (read->evaluated() < drafted.evaluated()) REPLAYSSM_TRY(step(engine, *read));
  const auto expected = bytes_of(engine, *read);
  if (!expected) return expected.error();
  const auto found = bytes_of(engine, drafted);
  if (!found) return found.error();
  return *found == *expected;
}

}  // namespace

Status check_speculation(const EngineOptions& options, const std::vector<TokenId>& text,
                         CheckList& checks) {
  const auto plain = Engine::create(sized(options));
  if (!plain) return plain.error();
  const auto expected = generate(**plain, text);
  if (!expected) return expected.error();

  for (const SpeculationOptions& speculation : available(options.model_path)) {
    const SpeculativeAlgorithm algorithm = speculation.algorithm;
    EngineOptions with_drafts = sized(options);
    with_drafts.speculation = speculation;
    if (!check_device(with_drafts).ok()) continue;
    const auto engine = Engine::create(with_drafts);
    if (!engine) return engine.error();
    auto found = generate(**engine, text);
    if (!found) return found.error();
    const auto equal = std::mismatch(found->output.begin(), found->output.end(),
                                     expected->output.begin(), expected->output.end())
                           .first -
                       found->output.begin();
    const bool drafted = found->counters.drafts > 0 || algorithm == SpeculativeAlgorithm::ngram;
    checks.add({fmt::format("drafts by {}: {} windows, {} of {} drafts", name_of(algorithm),
                            found->counters.windows, found->counters.drafts_accepted,
                            found->counters.drafts),
                "tokens as without", fmt::format("{} of {}", equal, kDraftedOutputs),
                drafted ? "all" : "no draft was made", drafted && equal == kDraftedOutputs});
    const auto same = same_memory_as_read(**engine, found->sequence);
    if (!same) return same.error();
    checks.add({fmt::format("drafts by {}: what is held", name_of(algorithm)),
                "bits of memory against the text read", *same ? "equal" : "different", "equal",
                *same});
  }
  return {};
}

}  // namespace replayssm::cli
