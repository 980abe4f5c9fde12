#include "model/tokenizer_ids.h"

#include <simdjson.h>

#include <algorithm>

#include "model/json_file.h"

namespace replayssm {
namespace {

constexpr std::int64_t kLargestTokenizer = std::int64_t{256} << 20;
constexpr std::int64_t kLargestId = (1 << 24) - 1;

class IdScan {
 public:
  IdScan(std::string file, const std::string& eos_text)
      : file_(std::move(file)), eos_text_(eos_text) {}

  Status see(std::string_view token, simdjson::dom::element id) {
    std::int64_t value = 0;
    if (id.get_int64().get(value) != simdjson::SUCCESS || value < 0 || value > kLargestId) {
      return refuse(fmt::format("{}: id of token \"{}\"", file_, token.substr(0, 60)),
                    simdjson::minify(id).substr(0, 60),
                    fmt::format("an integer from 0 to {}", kLargestId));
    }
    ids_.size = std::max(ids_.size, static_cast<int>(value) + 1);
    if (!eos_text_.empty() && token == eos_text_) ids_.eos = static_cast<TokenId>(value);
    return {};
  }

  const TokenizerIds& ids() const { return ids_; }

 private:
  std::string file_;
  const std::string& eos_text_;
  TokenizerIds ids_;
};

}  // namespace

Result<TokenizerIds> read_tokenizer_ids(const std::filesystem::path& tokenizer_json,
                                        const std::string& eos_text) {
  auto text = read_file(tokenizer_json, kLargestTokenizer);
  if (!text) return text.error();
  const std::string file = tokenizer_json.filename().string();

  // simdjson, since a real vocabulary makes this file 20 MB.
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(text->data(), text->size()).get(root)) {
    return Error{fmt::format("{}: not valid JSON: {}", file, simdjson::error_message(error))};
  }
  simdjson::dom::object vocab;
  if (root["model"]["vocab"].get_object().get(vocab) != simdjson::SUCCESS) {
    return Error{fmt::format("{}: model.vocab: missing; expected an object of token ids", file)};
  }
  IdScan scan(file, eos_text);
  for (const auto field : vocab) REPLAYSSM_TRY(scan.see(field.key, field.value));

  simdjson::dom::array added;
  if (root["added_tokens"].get_array().get(added) == simdjson::SUCCESS) {
    for (const simdjson::dom::element token : added) {
      std::string_view content;
      simdjson::dom::element id;
      if (token["content"].get_string().get(content) != simdjson::SUCCESS ||
          token["id"].get(id) != simdjson::SUCCESS) {
        return Error{fmt::format("{}: added_tokens: expected objects with content and id", file)};
      }
      REPLAYSSM_TRY(scan.see(content, id));
    }
  }
  if (scan.ids().size == 0) return Error{fmt::format("{}: model.vocab: empty", file)};
  return scan.ids();
}

Result<std::string> read_eos_text(const std::filesystem::path& tokenizer_config_json) {
  auto root = read_json_object(tokenizer_config_json);
  if (!root) return root.error();
  const Fields fields(*root, tokenizer_config_json.filename().string() + ": ");
  std::string text;
  if (fields.at("eos_token").is_object()) {
    auto token = fields.object("eos_token");
    if (!token) return token.error();
    REPLAYSSM_TRY(token->text("content", text));
  } else {
    REPLAYSSM_TRY(fields.text("eos_token", text));
  }
  return text;
}

}  // namespace replayssm
