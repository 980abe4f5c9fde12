#include "load/load_prompts.h"

#include <array>
#include <fstream>
#include <random>
#include <string_view>

namespace replayssm::load {
namespace {

constexpr std::array<std::string_view, 24> kSyllables{
    "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo",  "mu",  "na",  "pe",
    "ri", "so", "tu", "va", "we", "xi", "yo", "zu", "bra", "cle", "dro", "sti"};

// The generator's own bits, so that no standard library's distribution is in between.
std::string words(std::mt19937_64& random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::uint64_t bits = random();
    const std::uint64_t syllables = 2 + bits % 2;
    bits /= 2;
    if (i > 0) text += ' ';
    for (std::uint64_t j = 0; j < syllables; ++j) {
      text += kSyllables[bits % kSyllables.size()];
      bits /= kSyllables.size();
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> random_prompts(const PromptOptions& options) {
  std::mt19937_64 random(options.seed);
  std::string prefix = words(random, options.prefix_words);
  if (!prefix.empty()) prefix += '\n';
  std::vector<std::string> prompts;
  for (int i = 0; i < options.requests; ++i) {
    prompts.push_back(prefix + words(random, options.words));
  }
  return prompts;
}

Result<std::vector<std::string>> prompts_of_file(const std::filesystem::path& file, int requests) {
  std::ifstream stream(file);
  if (!stream) return refuse("--prompts", file.string(), "a file that can be read");
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  }
  if (lines.empty()) return refuse("--prompts", file.string(), "a file with a prompt on a line");
  std::vector<std::string> prompts;
  for (int i = 0; i < requests; ++i) {
    prompts.push_back(lines[static_cast<std::size_t>(i) % lines.size()]);
  }
  return prompts;
}

}  // namespace replayssm::load
