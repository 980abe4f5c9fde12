// Ways to cut a text into pieces, for parsers that read streams.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace replayssm::testing {

// The whole, single bytes, every cut into two, and `random_cuts` cuts into short pieces, some of
// them empty.
inline std::vector<std::vector<std::string>> splits_of(std::string_view text,
                                                       int random_cuts = 40) {
  std::vector<std::vector<std::string>> splits;
  splits.push_back({std::string(text)});
  splits.emplace_back();
  for (char byte : text) splits.back().emplace_back(1, byte);
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    splits.push_back({std::string(text.substr(0, cut)), std::string(text.substr(cut))});
  }
  std::mt19937 random(static_cast<std::mt19937::result_type>(text.size()));
  for (int i = 0; i < random_cuts; ++i) {
    splits.emplace_back();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = random() % 9;
      splits.back().emplace_back(text.substr(at, length));
      at += length;
    }
  }
  return splits;
}

}  // namespace replayssm::testing
