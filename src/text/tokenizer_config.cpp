#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

namespace replayssm {
namespace {

using nlohmann::json;

constexpr std::string_view kFile = "tokenizer_config.json";

Error wrong(std::string_view field, std::string_view accepted) {
  return Error{fmt::format("{}: {}: expected {}", kFile, field, accepted)};
}

Result<AddedToken> added_token(const std::string& key, const json& entry) {
  const std::string field = fmt::format("added_tokens_decoder[\"{}\"]", key);
  AddedToken token;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
  if (error != std::errc() || end != key.data() + key.size() || token.id < 0) {
    return wrong(field, "a token id as the key");
  }
  if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string()) {
    return wrong(field, "an object with a text \"content\"");
  }
  token.content = entry["content"].get<std::string>();
  const std::pair<const char*, bool*> flags[] = {{"special", &token.special},
                                                 {"lstrip", &token.lstrip},
                                                 {"rstrip", &token.rstrip},
                                                 {"single_word", &token.single_word},
                                                 {"normalized", &token.normalized}};
  for (const auto& [name, flag] : flags) {
    const auto found = entry.find(name);
    if (found == entry.end()) continue;
    if (!found->is_boolean()) return wrong(fmt::format("{}.{}", field, name), "true or false");
    *flag = found->get<bool>();
  }
  return token;
}

// A special token is its text, or an object that holds its text.
std::optional<std::string> token_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

Result<std::optional<std::string>> chat_template(const json& value) {
  if (value.is_null()) return std::optional<std::string>();
  if (value.is_string()) return std::optional(value.get<std::string>());
  if (value.is_array()) {
    for (const json& entry : value) {
      if (!entry.is_object() || entry.value("name", json()) != "default") continue;
      const auto text = entry.find("template");
      if (text != entry.end() && text->is_string()) return std::optional(text->get<std::string>());
    }
  }
  return wrong("chat_template", "a text, or a list of {name, template} with one named \"default\"");
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& directory) {
  TokenizerConfig config;
  std::error_code missing;
  if (!std::filesystem::exists(directory / kFile, missing)) return config;
  if (!std::filesystem::is_regular_file(directory / kFile, missing)) {
    return Error{fmt::format("{}: not a regular file", (directory / kFile).string())};
  }
  std::ifstream file(directory / kFile, std::ios::binary);
  const json root = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) {
    return Error{fmt::format("{}: not a JSON object", (directory / kFile).string())};
  }

  if (const auto found = root.find("added_tokens_decoder"); found != root.end()) {
    if (!found->is_object()) return wrong("added_tokens_decoder", "an object");
    for (const auto& [key, entry] : found->items()) {
      Result<AddedToken> token = added_token(key, entry);
      if (!token) return token.error();
      config.added_tokens.push_back(*std::move(token));
    }
    std::sort(config.added_tokens.begin(), config.added_tokens.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  }
  for (const auto& [key, value] : root.items()) {
    if (!key.ends_with("_token") || value.is_null() || value.is_boolean()) continue;
    if (auto text = token_text(value)) config.special_tokens.emplace(key, *std::move(text));
  }
  if (const auto found = root.find("chat_template"); found != root.end()) {
    Result<std::optional<std::string>> text = chat_template(*found);
    if (!text) return text.error();
    config.chat_template = *std::move(text);
  }
  return config;
}

}  // namespace replayssm
