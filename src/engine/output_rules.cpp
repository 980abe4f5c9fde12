#include "engine/output_rules.h"

#include <algorithm>
#include <cstddef>

#include "engine/generation.h"

namespace replayssm {
namespace {

bool contains(const std::vector<TokenId>& tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

OutputRules::OutputRules(const GenerationRequest& request, std::span<const TokenId> eos)
    : eos_(eos.begin(), eos.end()),
      ignore_eos_(request.ignore_eos),
      stop_tokens_(request.stop_token_ids),
      min_tokens_(request.min_tokens),
      logit_bias_(request.logit_bias),
      top_logprobs_(request.top_logprobs) {
  if (request.constraint != nullptr) constraint_ = *request.constraint;
  if (request.prompt_logprobs) prompt_logprobs_ = request.top_logprobs.value_or(0);
}

Result<LogitMask> OutputRules::mask(int outputs, int vocab_size) {
  const bool too_early = outputs < min_tokens_;
  if (!constraint_ && !too_early) return LogitMask();
  mask_.assign((static_cast<std::size_t>(vocab_size) + 31) / 32, ~std::uint32_t{0});
  if (constraint_) REPLAYSSM_TRY(constraint_->fill_mask(mask_));
  // A document that is complete may end at once: there is nothing else that it could do.
  if (!too_early || (constraint_ && constraint_->complete())) return LogitMask(mask_);
  const auto forbid = [&](TokenId token) {
    const auto word = static_cast<std::size_t>(token) / 32;
    if (token >= 0 && word < mask_.size()) mask_[word] &= ~(std::uint32_t{1} << (token % 32));
  };
  for (const TokenId token : eos_) forbid(token);
  for (const TokenId token : stop_tokens_) forbid(token);
  return LogitMask(mask_);
}

Status OutputRules::accept(TokenId token) {
  if (!constraint_ || contains(stop_tokens_, token)) return {};
  return constraint_->accept(token);
}

bool OutputRules::complete() const {
  return constraint_ && constraint_->vocabulary().end_tokens().empty() && constraint_->complete();
}

bool OutputRules::ends(TokenId token) const {
  if (contains(stop_tokens_, token)) return true;
  if (constraint_ && constraint_->ended()) return true;
  return !ignore_eos_ && contains(eos_, token);
}

}  // namespace replayssm
