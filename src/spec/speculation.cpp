#include "spec/speculation.h"

#include <algorithm>

#include "replay/geometry.h"
#include "spec/ngram_drafter.h"

namespace replayssm {
namespace {

constexpr int kNgramWindow = 12;
constexpr int kMtpSteps = 3;  // acceptance falls with every draft made from the head's own output

Status refuse_flags(const SpeculationOptions& options) {
  if (options.draft_tokens != 0 && options.draft_tokens < 2) {
    return refuse("--speculative-num-draft-tokens", options.draft_tokens,
                  "at least 2: the newest token and a draft");
  }
  if (options.steps < 0) {
    return refuse("--speculative-num-steps", options.steps, "at least 1");
  }
  const SpeculativeAlgorithm algorithm = options.algorithm;
  const bool ngram = algorithm == SpeculativeAlgorithm::ngram;
  if (!options.draft_model_path.empty() && !has_draft_model(algorithm)) {
    return refuse("--speculative-draft-model-path", options.draft_model_path.string(),
                  fmt::format("nothing with {}", ngram ? "NGRAM, which has no weights"
                                                       : "EAGLE, the model's own draft head"));
  }
  if (options.steps != 0 && algorithm != SpeculativeAlgorithm::mtp) {
    return refuse("--speculative-num-steps", options.steps,
                  fmt::format("nothing with {}", name_of(algorithm)));
  }
  if (!(options.confidence_threshold >= 0 && options.confidence_threshold <= 1)) {
    return refuse("--speculative-confidence-threshold", options.confidence_threshold, "0 to 1");
  }
  if (algorithm != SpeculativeAlgorithm::dspark) {
    const std::string nothing = fmt::format("nothing with {}", name_of(algorithm));
    if (options.confidence_threshold != 0) {
      return refuse("--speculative-confidence-threshold", options.confidence_threshold, nothing);
    }
    // "none" is what they do.
    if (options.step_rates != SpeculationOptions{}.step_rates && options.step_rates != "none") {
      return refuse("--speculative-step-rates", options.step_rates, nothing);
    }
  }
  if (ngram && options.sampled_drafts) {
    return Error{"--speculative-sampled-drafts: NGRAM has no distribution to draw from"};
  }
  return {};
}

Result<int> wanted_window(const SpeculationOptions& options, int block_drafts) {
  REPLAYSSM_TRY(refuse_flags(options));
  if (options.algorithm == SpeculativeAlgorithm::ngram) {
    return options.draft_tokens == 0 ? kNgramWindow : options.draft_tokens;
  }
  if (has_draft_model(options.algorithm)) {
    if (options.draft_tokens > block_drafts + 1) {
      return refuse(
          "--speculative-num-draft-tokens", options.draft_tokens,
          fmt::format("2 to {}: the drafter makes {} drafts", block_drafts + 1, block_drafts));
    }
    return options.draft_tokens == 0 ? block_drafts + 1 : options.draft_tokens;
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
    case SpeculativeAlgorithm::dflash:
      return "DFLASH";
    case SpeculativeAlgorithm::dspark:
      return "DSPARK";
  }
  return "unknown";
}

Result<SpeculativeAlgorithm> algorithm_named(std::string_view name) {
  if (name == "NGRAM") return SpeculativeAlgorithm::ngram;
  if (name == "EAGLE" || name == "NEXTN" || name == "MTP") return SpeculativeAlgorithm::mtp;
  if (name == "DFLASH") return SpeculativeAlgorithm::dflash;
  if (name == "DSPARK") return SpeculativeAlgorithm::dspark;
  constexpr std::string_view kBuilt =
      "NGRAM; EAGLE, NEXTN or MTP for the model's own draft head; DFLASH or DSPARK";
  if (name == "EAGLE3") {
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

Result<SpeculationPlan> plan_speculation(const SpeculationOptions& options, int fold_block,
                                         int block_drafts) {
  if (options.algorithm == SpeculativeAlgorithm::none) return SpeculationPlan{};
  const auto wanted = wanted_window(options, block_drafts);
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
