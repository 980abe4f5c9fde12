// Reading tests/data/text, which tools/goldens_text makes.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "source_dir.h"
#include "text/tokenizer.h"

namespace replayssm {

inline std::filesystem::path text_data(std::string_view name) {
  return source_dir() / "tests/data/text" / name;
}

// Key order is kept, as the template's tojson needs it. Fails the test if there is no such file.
inline nlohmann::ordered_json read_golden_file(std::string_view name) {
  std::ifstream file(text_data(name), std::ios::binary);
  EXPECT_TRUE(file) << text_data(name);
  return nlohmann::ordered_json::parse(file);
}

// "qwen3", "qwen35" or "flags".
inline Tokenizer load_test_tokenizer(std::string_view name) {
  Result<Tokenizer> tokenizer = Tokenizer::load(text_data(name));
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
  return *std::move(tokenizer);
}

inline std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

}  // namespace replayssm
