#include <algorithm>
#include <string>

#include "grammar/regex.h"

namespace replayssm::grammar {
namespace {

constexpr char32_t kLastCodePoint = 0x10ffff;

// `"`, `\` and controls cannot stand raw in a JSON string.
bool needs_escape(char32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

std::string escape_of(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  }
}

}  // namespace

std::vector<CodeRange> normalized(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  std::vector<CodeRange> merged;
  for (const CodeRange& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> rest;
  char32_t from = 0;
  for (const CodeRange& range : normalized(ranges)) {
    if (range.first > from) rest.push_back({from, range.first - 1});
    from = range.last + 1;
  }
  if (from <= kLastCodePoint) rest.push_back({from, kLastCodePoint});
  return rest;
}

std::optional<NodeId> string_character(ProgramBuilder& builder, std::vector<CodeRange> ranges,
                                       NodeId next) {
  ranges = normalized(std::move(ranges));
  const auto holds = [&](char32_t c) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const CodeRange& r) { return r.first <= c && c <= r.last; });
  };
  std::vector<NodeId> alternatives;
  std::vector<CodeRange> outside = complement(ranges);
  for (char32_t c = 0; c <= '\\'; ++c) {
    if (!needs_escape(c)) continue;
    if (holds(c)) alternatives.push_back(builder.literal(escape_of(c), next));
    outside.push_back({c, c});
  }
  if (const auto raw = builder.characters(complement(outside), next)) {
    alternatives.push_back(*raw);
  }
  if (alternatives.empty()) return std::nullopt;
  return builder.any_of(alternatives);
}

}  // namespace replayssm::grammar
