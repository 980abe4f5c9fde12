#include "text/stop_matcher.h"

#include <algorithm>

namespace replayssm {

bool StopMatcher::Pattern::advance(char byte) {
  while (matched > 0 && text[matched] != byte) matched = fallback[matched];
  if (text[matched] == byte) ++matched;
  return matched == text.size();
}

Result<StopMatcher> StopMatcher::make(const std::vector<std::string>& stop_strings,
                                      MatchedText matched_text) {
  std::vector<Pattern> patterns;
  for (const std::string& stop : stop_strings) {
    if (stop.empty()) return refuse("stop", "\"\"", "strings of at least one byte");
    const bool repeated = std::any_of(patterns.begin(), patterns.end(),
                                      [&](const Pattern& p) { return p.text == stop; });
    if (repeated) continue;
    Pattern pattern{stop, std::vector<std::size_t>(stop.size() + 1, 0), 0};
    for (std::size_t n = 1, prefix = 0; n < stop.size(); ++n) {
      while (prefix > 0 && stop[prefix] != stop[n]) prefix = pattern.fallback[prefix];
      if (stop[prefix] == stop[n]) ++prefix;
      pattern.fallback[n + 1] = prefix;
    }
    patterns.push_back(std::move(pattern));
  }
  return StopMatcher(std::move(patterns), matched_text);
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  std::string seen = std::move(held_);
  held_.clear();
  const std::size_t held_before = seen.size();
  seen += text;
  for (std::size_t i = held_before; i < seen.size(); ++i) {
    const Pattern* complete = nullptr;
    for (Pattern& pattern : patterns_) {
      const bool longer = complete == nullptr || pattern.text.size() > complete->text.size();
      if (pattern.advance(seen[i]) && longer) complete = &pattern;
    }
    if (complete == nullptr) continue;
    matched_ = complete->text;
    seen.resize(i + 1 - (matched_text_ == MatchedText::excluded ? complete->text.size() : 0));
    return seen;
  }
  std::size_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max(keep, pattern.matched);
  held_ = seen.substr(seen.size() - keep);
  seen.resize(seen.size() - keep);
  return seen;
}

std::string StopMatcher::finish() {
  std::string rest = std::move(held_);
  held_.clear();
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return rest;
}

}  // namespace replayssm
