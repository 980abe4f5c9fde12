#include "spec/speculation.h"

#include <algorithm>

#include "replay/geometry.h"
#include "spec/ngram_drafter.h"

namespace replayssm {
namespace {

constexpr int kNgramWindow = 12;
constexpr int kMtpSteps = 3;  // acceptance falls with every draft made from the head's own output

Result<int> wanted_window(const SpeculationOptions& options) {
  const bool ngram = options.algorithm == SpeculativeAlgorithm::ngram;
  if (options.draft_tokens != 0 && options.draft_tokens < 2) {
    return refuse("--speculative-num-draft-tokens", options.draft_tokens,
                  "at least 2: the newest token and a draft");
  }
  if (options.steps < 0) {
    return refuse("--speculative-num-steps", options.steps, "at least 1");
  }
  if (!options.draft_model_path.empty()) {
    return refuse("--speculative-draft-model-path", options.draft_model_path.string(),
                  fmt::format("nothing with {}", ngram ? "NGRAM, which has no weights"
                                                       : "EAGLE, the model's own draft head"));
  }
  if (ngram) {
    if (options.steps != 0) {
      return refuse("--speculative-num-steps", options.steps, "nothing with NGRAM");
    }
    if (options.sampled_drafts) {
      return Error{"--speculative-sampled-drafts: NGRAM has no distribution to draw from"};
    }
    return options.draft_tokens == 0 ? kNgramWindow : options.draft_tokens;
  }
  const int from_steps = (options.steps == 0 ? kMtpSteps : options.steps) + 1;
  if (options.steps == 0 && options.draft_tokens != 0) return options.draft_tokens;
  if (options.draft_tokens != 0 && options.draft_tokens != from_steps) {
    return refuse(
        "--speculative-num-draft-tokens", options.draft_tokens,
        fmt::format("{}, one more than --speculative-num-steps {}", from_steps, options.steps));
  }
  return from_steps;
}

}  // namespace

std::string_view name_of(SpeculativeAlgorithm algorithm) {
  switch (algorithm) {
    case SpeculativeAlgorithm::none:
      return "none";
    case SpeculativeAlgorithm::ngram:
      return "NGRAM";
    case SpeculativeAlgorithm::mtp:
      return "EAGLE";
  }
  return "unknown";
}

Result<SpeculativeAlgorithm> algorithm_named(std::string_view name) {
  if (name == "NGRAM") return SpeculativeAlgorithm::ngram;
  if (name == "EAGLE" || name == "NEXTN" || name == "MTP") return SpeculativeAlgorithm::mtp;
  constexpr std::string_view kBuilt =
      "NGRAM, or EAGLE, NEXTN or MTP for the model's own draft head";
  if (name == "EAGLE3" || name == "DFLASH" || name == "DSPARK") {
    return refuse("--speculative-algorithm", fmt::format("{}, which is not built,", name), kBuilt);
  }
  return refuse("--speculative-algorithm", name, kBuilt);
}

Result<RaggedVerify> ragged_verify_named(std::string_view name) {
  if (name == "static") return RaggedVerify::fixed;
  if (name == "cap-accept") return RaggedVerify::cap_accept;
  if (name == "compact") return RaggedVerify::compact;
  return refuse("--speculative-ragged-verify", name, "static, cap-accept or compact");
}

Result<SpeculationPlan> plan_speculation(const SpeculationOptions& options, int fold_block) {
  if (options.algorithm == SpeculativeAlgorithm::none) return SpeculationPlan{};
  const auto wanted = wanted_window(options);
  if (!wanted) return wanted.error();
  SpeculationPlan plan;
  plan.window_max = std::min({*wanted, fold_block, FoldGeometry::kLargestWindow});
  if (plan.window_max < 2) {
    return refuse("--linear-replayssm-cache-len", fold_block,
                  "at least 2 with --speculative-algorithm");
  }
  if (plan.window_max < *wanted) {
    plan.note =
        fmt::format("--speculative-num-draft-tokens: windows of {} tokens are cut to {}, {}",
                    *wanted, plan.window_max,
                    plan.window_max == fold_block
                        ? fmt::format("those of --linear-replayssm-cache-len {}", fold_block)
                        : "the most that one step verifies");
  }
  return plan;
}

}  // namespace replayssm
