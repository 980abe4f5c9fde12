// Vocabularies and walks for tests of constrained decoding.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace replayssm::testing {

// Every byte, every piece of two to five bytes of a JSON text (so pieces cross all borders of the
// syntax), an end token that is the last id, and a token without text before it.
inline std::shared_ptr<const grammar::TokenTrie> json_vocabulary() {
  static const auto vocabulary = [] {
    const std::string sample =
        "{\"name\": \"caf\xC3\xA9 \xE6\xBC\xA2\xF0\x9F\x98\x80\", \"n\": [1, -2.5e3, 0.25], "
        "\"ok\": true,\n  \"no\": false, \"x\": null, \"a\\\"b\\\\\\u00e9\": {\"k\": [[], {}]},\n"
        "    \"date\": \"2024-02-28T10:11:12Z\"}  \n\"},{\"\"}]}\"],[\": {\"";
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    for (std::size_t length = 2; length <= 5; ++length) {
      for (std::size_t at = 0; at + length <= sample.size(); ++at) {
        tokens.push_back(sample.substr(at, length));  // some come twice, as in real vocabularies
      }
    }
    tokens.emplace_back();
    tokens.emplace_back();
    const std::vector<std::string_view> views(tokens.begin(), tokens.end());
    const TokenId end = static_cast<TokenId>(tokens.size() - 1);
    return std::make_shared<const grammar::TokenTrie>(views, std::span(&end, 1));
  }();
  return vocabulary;
}

inline TokenId end_token() { return json_vocabulary()->end_tokens()[0]; }

inline std::shared_ptr<grammar::ConstrainedTokens> constrained(const grammar::Grammar& grammar) {
  return std::make_shared<grammar::ConstrainedTokens>(grammar, json_vocabulary());
}

inline std::shared_ptr<grammar::ConstrainedTokens> constrained(std::string_view schema) {
  return constrained(grammar::Grammar::from_schema(nlohmann::ordered_json::parse(schema)).value());
}

inline std::vector<TokenId> allowed_tokens(const std::vector<std::uint32_t>& bits) {
  std::vector<TokenId> ids;
  for (std::size_t id = 0; id < bits.size() * 32; ++id) {
    if ((bits[id / 32] >> (id % 32) & 1u) != 0) ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

// Draws tokens uniformly from the mask until an end token comes. From `patience` tokens on it
// mostly takes what closes something where that is allowed. Empty if it did not end within `most`
// tokens.
template <class State>
std::string sample(State& state, std::mt19937& random, std::size_t patience, std::size_t most) {
  const grammar::TokenTrie& vocabulary = *json_vocabulary();
  std::vector<std::uint32_t> bits(vocabulary.mask_words());
  std::string text;
  for (std::size_t step = 0; step < most; ++step) {
    if (!state.fill_mask(bits)) return {};
    const std::vector<TokenId> ids = allowed_tokens(bits);
    if (ids.empty()) return {};
    TokenId id = ids[random() % ids.size()];
    if (step >= patience) {
      const auto take = [&](TokenId closer) {
        const auto at = static_cast<std::uint32_t>(closer);
        if ((bits[at / 32] >> (at % 32) & 1u) != 0) id = closer;
      };
      // Inside a string that needs something else first, brackets would go on for ever.
      if (random() % 4 != 0) take(']');
      if (random() % 4 != 0) take('}');
      take('"');
      take(end_token());
    }
    if (!state.accept(id)) return {};
    if (id == end_token()) return text;
    text += vocabulary.bytes_of(id);
  }
  return {};
}

}  // namespace replayssm::testing
