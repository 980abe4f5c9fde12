#include "text/tokenizer_file.h"

#include <simdjson.h>

#include <optional>
#include <string_view>
#include <unordered_map>

#include "text/byte_alphabet.h"

namespace replayssm {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

Error wrong(std::string_view field, std::string_view accepted) {
  return Error{fmt::format("tokenizer.json: {}: expected {}", field, accepted)};
}

// The field's text; nothing where it is absent or no text.
std::optional<std::string_view> text_field(object from, std::string_view name) {
  std::string_view text;
  if (from[name].get(text) != simdjson::SUCCESS) return std::nullopt;
  return text;
}

bool is_absent_or_null(object from, std::string_view name) {
  element field;
  return from[name].get(field) != simdjson::SUCCESS || field.is_null();
}

bool flag(object from, std::string_view name, bool otherwise) {
  bool value = otherwise;
  if (from[name].get(value) != simdjson::SUCCESS) value = otherwise;
  return value;
}

std::string_view type_of(object component) {
  return text_field(component, "type").value_or("(no type)");
}

// The components of a field: none if it is null, those of a Sequence, or the one that it is.
Result<std::vector<object>> components(object root, std::string_view field,
                                       std::string_view list_name) {
  std::vector<object> found;
  if (is_absent_or_null(root, field)) return found;
  object component;
  if (root[field].get(component) != simdjson::SUCCESS) return wrong(field, "an object or null");
  if (type_of(component) != "Sequence") return std::vector{component};
  array list;
  if (component[list_name].get(list) != simdjson::SUCCESS) {
    return wrong(fmt::format("{}.{}", field, list_name), "a list");
  }
  for (element entry : list) {
    object part;
    if (entry.get(part) != simdjson::SUCCESS) return wrong(field, "objects in the Sequence");
    found.push_back(part);
  }
  return found;
}

Status read_normalizer(object root, TokenizerFile& file) {
  Result<std::vector<object>> parts = components(root, "normalizer", "normalizers");
  if (!parts) return parts.error();
  for (object part : *parts) {
    if (type_of(part) != "NFC") {
      return refuse("tokenizer.json normalizer", type_of(part), "NFC or none");
    }
    file.nfc = true;
  }
  return {};
}

// Sequence[Split(regex, Isolated), ByteLevel] and nothing else.
Status read_pre_tokenizer(object root, TokenizerFile& file) {
  constexpr std::string_view kAccepted =
      "Sequence of Split (behavior Isolated, not inverted) and ByteLevel (add_prefix_space and "
      "use_regex false)";
  Result<std::vector<object>> parts = components(root, "pre_tokenizer", "pretokenizers");
  if (!parts) return parts.error();
  std::string found;
  for (object part : *parts) found += (found.empty() ? "" : ", ") + std::string(type_of(part));
  if (found != "Split, ByteLevel") {
    return refuse("tokenizer.json pre_tokenizer", found.empty() ? "none" : found, kAccepted);
  }

  const object split = (*parts)[0];
  const std::string_view behavior = text_field(split, "behavior").value_or("(none)");
  if (behavior != "Isolated" || flag(split, "invert", false)) {
    return refuse("tokenizer.json pre_tokenizer Split behavior", behavior, kAccepted);
  }
  std::string_view regex;
  if (split["pattern"]["Regex"].get(regex) != simdjson::SUCCESS) {
    return wrong("pre_tokenizer Split pattern", "{\"Regex\": text}");
  }
  Result<SplitPattern> pattern = split_pattern_of(regex);
  if (!pattern) return pattern.error();
  file.pattern = *pattern;

  const object byte_level = (*parts)[1];
  if (flag(byte_level, "add_prefix_space", true)) {
    return refuse("tokenizer.json pre_tokenizer ByteLevel add_prefix_space", true, "false");
  }
  if (flag(byte_level, "use_regex", true)) {
    return refuse("tokenizer.json pre_tokenizer ByteLevel use_regex", true, "false");
  }
  return {};
}

// Both are ByteLevel or (post_processor) absent: nothing is added, and bytes are joined.
Status read_decoder(object root) {
  Result<std::vector<object>> decoders = components(root, "decoder", "decoders");
  if (!decoders) return decoders.error();
  if (decoders->size() != 1 || type_of((*decoders)[0]) != "ByteLevel") {
    return refuse("tokenizer.json decoder",
                  decoders->empty() ? std::string_view("none") : type_of((*decoders)[0]),
                  "ByteLevel");
  }
  Result<std::vector<object>> processors = components(root, "post_processor", "processors");
  if (!processors) return processors.error();
  for (object processor : *processors) {
    if (type_of(processor) != "ByteLevel") {
      return refuse("tokenizer.json post_processor", type_of(processor), "ByteLevel or none");
    }
  }
  return {};
}

using IdOfToken = std::unordered_map<std::string_view, TokenId>;

Status read_vocabulary(object model, TokenizerFile& file, IdOfToken& id_of) {
  object vocabulary;
  if (model["vocab"].get(vocabulary) != simdjson::SUCCESS) return wrong("model.vocab", "an object");
  id_of.reserve(vocabulary.size());
  file.vocabulary.reserve(vocabulary.size());
  for (const auto& [stored, value] : vocabulary) {
    std::int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= kLargestVocabulary) {
      return wrong(fmt::format("model.vocab[\"{}\"]", stored),
                   fmt::format("an id from 0 to {}", kLargestVocabulary - 1));
    }
    const auto index = static_cast<std::size_t>(id);
    if (index >= file.vocabulary.size()) file.vocabulary.resize(index + 1);
    if (!file.vocabulary[index].empty()) {
      return wrong(fmt::format("model.vocab[\"{}\"]", stored),
                   fmt::format("one token for each id; {} has two", id));
    }
    if (!id_of.emplace(stored, static_cast<TokenId>(id)).second) {
      return wrong(fmt::format("model.vocab[\"{}\"]", stored), "each token once");
    }
    file.vocabulary[index] = bytes_of_stored_token(stored);
  }

  file.byte_tokens.fill(-1);
  for (std::size_t id = 0; id < file.vocabulary.size(); ++id) {
    if (file.vocabulary[id].size() != 1) continue;
    file.byte_tokens[static_cast<unsigned char>(file.vocabulary[id][0])] = static_cast<TokenId>(id);
  }
  for (std::size_t byte = 0; byte < file.byte_tokens.size(); ++byte) {
    if (file.byte_tokens[byte] < 0) {
      return wrong("model.vocab", fmt::format("a token for every byte; {:#04x} has none", byte));
    }
  }
  return {};
}

// "a b", or a list of a and b.
bool read_pair(element entry, std::string_view& left, std::string_view& right) {
  std::string_view joined;
  if (entry.get(joined) == simdjson::SUCCESS) {
    const std::size_t space = joined.find(' ');
    if (space == joined.npos) return false;
    left = joined.substr(0, space);
    right = joined.substr(space + 1);
    return true;
  }
  array pair;
  return entry.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
         pair.at(0).get(left) == simdjson::SUCCESS && pair.at(1).get(right) == simdjson::SUCCESS;
}

Status read_merges(object model, const IdOfToken& id_of, TokenizerFile& file) {
  array merges;
  if (model["merges"].get(merges) != simdjson::SUCCESS) return wrong("model.merges", "a list");
  std::string joined;
  for (element entry : merges) {
    const auto field = [&] { return fmt::format("model.merges[{}]", file.merges.size()); };
    std::string_view left;
    std::string_view right;
    if (!read_pair(entry, left, right)) return wrong(field(), "\"a b\" or [\"a\", \"b\"]");
    joined.assign(left);
    joined += right;
    const auto left_id = id_of.find(left);
    const auto right_id = id_of.find(right);
    const auto result = id_of.find(joined);
    if (left_id == id_of.end() || right_id == id_of.end() || result == id_of.end()) {
      return wrong(field(),
                   fmt::format("\"{}\", \"{}\" and both joined in model.vocab", left, right));
    }
    file.merges.push_back({left_id->second, right_id->second, result->second});
  }
  return {};
}

Status read_model(object root, TokenizerFile& file) {
  object model;
  if (root["model"].get(model) != simdjson::SUCCESS) return wrong("model", "an object");
  // Old files name no type; what has merges is a BPE.
  const std::string_view type = text_field(model, "type").value_or("BPE");
  if (type != "BPE") return refuse("tokenizer.json model", type, "BPE");
  for (const char* field : {"dropout", "unk_token"}) {
    if (!is_absent_or_null(model, field)) return wrong(fmt::format("model.{}", field), "null");
  }
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!is_absent_or_null(model, field) && text_field(model, field) != "") {
      return wrong(fmt::format("model.{}", field), "null or empty");
    }
  }
  for (const char* field : {"byte_fallback", "ignore_merges"}) {
    if (flag(model, field, false)) return wrong(fmt::format("model.{}", field), "false");
  }
  IdOfToken id_of;
  REPLAYSSM_TRY(read_vocabulary(model, file, id_of));
  return read_merges(model, id_of, file);
}

Status read_added_tokens(object root, TokenizerFile& file) {
  if (is_absent_or_null(root, "added_tokens")) return {};
  array list;
  if (root["added_tokens"].get(list) != simdjson::SUCCESS) return wrong("added_tokens", "a list");
  for (element entry : list) {
    const std::string field = fmt::format("added_tokens[{}]", file.added_tokens.size());
    object token;
    std::int64_t id = 0;
    if (entry.get(token) != simdjson::SUCCESS || token["id"].get(id) != simdjson::SUCCESS ||
        id < 0 || id >= kLargestVocabulary) {
      return wrong(field + ".id", fmt::format("an id from 0 to {}", kLargestVocabulary - 1));
    }
    const auto content = text_field(token, "content");
    if (!content) return wrong(field + ".content", "a text");
    file.added_tokens.push_back({.id = static_cast<TokenId>(id),
                                 .content = std::string(*content),
                                 .special = flag(token, "special", false),
                                 .lstrip = flag(token, "lstrip", false),
                                 .rstrip = flag(token, "rstrip", false),
                                 .single_word = flag(token, "single_word", false),
                                 .normalized = flag(token, "normalized", false)});
  }
  return {};
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(const std::filesystem::path& path) {
  simdjson::dom::parser parser;
  element document;
  if (const auto error = parser.load(path.string()).get(document)) {
    std::error_code missing;
    if (!std::filesystem::is_regular_file(path, missing)) {
      return Error{fmt::format(
          "{}: {}", path.string(),
          std::filesystem::exists(path, missing) ? "not a regular file" : "no such file")};
    }
    return Error{fmt::format("{}: {}", path.string(), simdjson::error_message(error))};
  }
  object root;
  if (document.get(root) != simdjson::SUCCESS) {
    return Error{fmt::format("{}: not a JSON object", path.string())};
  }
  TokenizerFile file;
  REPLAYSSM_TRY(read_normalizer(root, file));
  REPLAYSSM_TRY(read_pre_tokenizer(root, file));
  REPLAYSSM_TRY(read_decoder(root));
  REPLAYSSM_TRY(read_model(root, file));
  REPLAYSSM_TRY(read_added_tokens(root, file));
  return file;
}

}  // namespace replayssm
