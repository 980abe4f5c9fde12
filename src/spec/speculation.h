// What is asked of speculation, and the window that follows from it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"

namespace replayssm {

enum class SpeculativeAlgorithm {
  none,
  ngram,
  mtp,     // the model's own draft head
  dflash,  // a block drafter with a checkpoint of its own, as is dspark
  dspark,
};

// How rows with drafts of different number are verified together.
enum class RaggedVerify {
  fixed,       // "static": every row evaluates a whole window, filled up where drafts are missing
  cap_accept,  // the same, but only as many drafts as there were can be accepted
  compact,     // every row evaluates its own
};

struct SpeculationOptions {
  SpeculativeAlgorithm algorithm = SpeculativeAlgorithm::none;
  int draft_tokens = 0;  // of a window, the anchor included; 0: the algorithm's default
  int steps = 0;         // drafts that a model makes one after the other; 0: the default
  std::filesystem::path draft_model_path;
  RaggedVerify ragged_verify = RaggedVerify::compact;
  // Drafts are drawn from the drafter's distribution where the request draws its tokens, and
  // rejection sampling decides. Otherwise they are its most likely tokens, and the text is that of
  // plain decoding with the same seed.
  bool sampled_drafts = false;
  // With a drafter that says how sure it is, unless every window is filled up:
  double confidence_threshold = 0;  // drafts from the first below it on are not verified
  // Steps a second by tokens, by which the lengths of windows are chosen: "measure" at start, a
  // file (StepRates::read), or "none": all drafts are verified.
  std::string step_rates = "measure";
};

// Whether its drafter is a checkpoint of its own.
constexpr bool has_draft_model(SpeculativeAlgorithm algorithm) {
  return algorithm == SpeculativeAlgorithm::dflash || algorithm == SpeculativeAlgorithm::dspark;
}

// NGRAM; EAGLE, NEXTN and MTP, which are one; DFLASH; DSPARK. Others are refused by name.
Result<SpeculativeAlgorithm> algorithm_named(std::string_view name);
std::string_view name_of(SpeculativeAlgorithm algorithm);
// static, cap-accept, compact.
Result<RaggedVerify> ragged_verify_named(std::string_view name);

struct SpeculationPlan {
  int window_max = 1;  // T_max
  std::string note;    // one line, if windows are shorter than asked for
};

// Refused by flag: values out of range, flags that the algorithm does not have or that disagree.
// `fold_block`: a window is not longer. `block_drafts`: of a block drafter, which makes no more.
Result<SpeculationPlan> plan_speculation(const SpeculationOptions& options, int fold_block,
                                         int block_drafts = 0);

}  // namespace replayssm
