#include "text/detokenizer.h"

#include <algorithm>
#include <string_view>

#include "text/utf8.h"

namespace replayssm {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::push(TokenId id) {
  replaced_earlier_ = 0;
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  std::size_t earlier = pending_.size();  // bytes
  pending_ += tokenizer_->token_bytes(id);
  std::string certain;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Character first = first_character(rest);
    if (first.kind == Utf8Character::Kind::truncated) break;
    certain += first.kind == Utf8Character::Kind::valid ? rest.substr(0, first.bytes)
                                                        : kReplacementCharacter;
    if (first.bytes <= earlier) ++replaced_earlier_;
    earlier -= std::min(first.bytes, earlier);
    rest.remove_prefix(first.bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return certain;
}

std::string Detokenizer::finish() {
  std::string last(pending_.empty() ? std::string_view() : kReplacementCharacter);
  pending_.clear();
  return last;
}

}  // namespace replayssm
