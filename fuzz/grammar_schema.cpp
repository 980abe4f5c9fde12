// Any JSON as a schema: refused, or a grammar from which a text can be drawn to its end.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace {

using namespace replayssm::grammar;

// Every byte and an end token.
std::shared_ptr<const TokenTrie> bytes_vocabulary() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    tokens.emplace_back();
    const std::vector<std::string_view> views(tokens.begin(), tokens.end());
    const replayssm::TokenId end = 256;
    return std::make_shared<const TokenTrie>(views, std::span(&end, 1));
  }();
  return vocabulary;
}

// Also what is not JSON becomes a schema: the text as a pattern.
nlohmann::ordered_json schema_of(std::string_view text) {
  nlohmann::ordered_json schema = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!schema.is_discarded()) return schema;
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) pattern += c;
  }
  return {{"pattern", pattern}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto grammar = Grammar::from_schema(schema_of({reinterpret_cast<const char*>(data), size}));
  if (!grammar.ok()) return 0;
  const auto vocabulary = bytes_vocabulary();
  GrammarState state(std::make_shared<ConstrainedTokens>(*grammar, vocabulary));
  std::mt19937 random(static_cast<std::mt19937::result_type>(size));
  std::vector<std::uint32_t> bits(vocabulary->mask_words());
  for (int step = 0; step < 400 && !state.ended(); ++step) {
    if (!state.fill_mask(bits)) return 0;  // too costly
    std::vector<replayssm::TokenId> allowed;
    for (replayssm::TokenId id = 0; id <= 256; ++id) {
      const auto at = static_cast<std::uint32_t>(id);
      if ((bits[at / 32] >> (at % 32) & 1u) != 0) allowed.push_back(id);
    }
    if (allowed.empty() || !state.accept(allowed[random() % allowed.size()])) std::abort();
  }
  if (!state.ended()) return 0;
  if (nlohmann::json::parse(state.position(), nullptr, false).is_discarded()) std::abort();
  return 0;
}
