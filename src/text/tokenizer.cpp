#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/origin_text.h"
#include "text/split_pattern.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_file.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace replayssm {
namespace {

OriginText repaired(OriginText text) {
  if (is_utf8(text.bytes())) return text;
  OriginText valid;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character first = first_character(std::string_view(text.bytes()).substr(at));
    if (first.kind == Utf8Character::Kind::valid) {
      valid.append(text, at, at + first.bytes);
    } else {
      valid.append(kReplacementCharacter, false);
    }
    at += first.bytes;
  }
  return valid;
}

// NFC of the bytes in [begin, end). What composes is trusted if all that it came from was.
OriginText normalised(const OriginText& text, std::size_t begin, std::size_t end) {
  OriginText composed;
  while (begin < end) {
    const auto rest = std::string_view(text.bytes()).substr(begin, end - begin);
    bool changes = false;
    const std::size_t size = nfc_chunk(rest, changes);
    if (changes) {
      std::string chunk;
      append_nfc(rest.substr(0, size), chunk);
      changes = chunk != rest.substr(0, size);
      if (changes) composed.append(chunk, text.trusted(begin, begin + size));
    }
    if (!changes) composed.append(text, begin, begin + size);
    begin += size;
  }
  return composed;
}

// Added tokens of both files by id. tokenizer_config.json may know more of them, and has the last
// word on the flags, but not on what an id means.
Result<std::vector<AddedToken>> merged(std::vector<AddedToken> tokens,
                                       const std::vector<AddedToken>& more) {
  for (const AddedToken& token : more) {
    const auto same_id = std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& known) {
      return known.id == token.id;
    });
    if (same_id == tokens.end()) {
      tokens.push_back(token);
    } else if (same_id->content == token.content) {
      *same_id = token;
    } else {
      return refuse(fmt::format("tokenizer_config.json added_tokens_decoder[\"{}\"]", token.id),
                    token.content, "\"" + same_id->content + "\" as in tokenizer.json");
    }
  }
  return tokens;
}

}  // namespace

struct Tokenizer::Parts {
  bool nfc;
  SplitPattern pattern;
  Bpe bpe;
  std::vector<std::string> bytes;  // of every token by id; empty where there is none
  std::vector<bool> added;         // by id
  std::vector<bool> special;       // by id
  std::unordered_map<std::string, TokenId> id_of_added;
  AddedTokenMatcher before_nfc;
  AddedTokenMatcher after_nfc;
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> pad;

  explicit Parts(TokenizerFile file)
      : nfc(file.nfc),
        pattern(file.pattern),
        bpe(file.byte_tokens, file.merges),
        bytes(std::move(file.vocabulary)) {}

  Status add(std::vector<AddedToken> tokens) {
    std::size_t size = bytes.size();
    for (const AddedToken& token : tokens) {
      if (token.id >= kLargestVocabulary) {
        return refuse("tokenizer_config.json added_tokens_decoder", token.id,
                      fmt::format("ids below {}", kLargestVocabulary));
      }
      size = std::max(size, static_cast<std::size_t>(token.id) + 1);
    }
    bytes.resize(size);
    added.resize(size);
    special.resize(size);
    std::vector<AddedToken> before;
    std::vector<AddedToken> after;
    for (AddedToken& token : tokens) {
      const auto id = static_cast<std::size_t>(token.id);
      bytes[id] = token.content;
      added[id] = true;
      special[id] = token.special;
      const auto [known, inserted] = id_of_added.emplace(token.content, token.id);
      if (!inserted) {
        return refuse("added token", token.content,
                      fmt::format("one id for it, not both {} and {}", known->second, token.id));
      }
      if (token.normalized && nfc) {
        std::string content;
        append_nfc(token.content, content);
        token.content = std::move(content);
      }
      (token.normalized ? after : before).push_back(std::move(token));
    }
    before_nfc = AddedTokenMatcher(std::move(before));
    after_nfc = AddedTokenMatcher(std::move(after));
    return {};
  }

  Status assign_roles(const std::map<std::string, std::string>& special_tokens) {
    const std::pair<const char*, std::optional<TokenId>*> roles[] = {
        {"bos_token", &bos}, {"eos_token", &eos}, {"pad_token", &pad}};
    for (const auto& [name, id] : roles) {
      const auto text = special_tokens.find(name);
      if (text == special_tokens.end()) continue;
      const auto known = id_of_added.find(text->second);
      const auto base = std::find(bytes.begin(), bytes.end(), text->second);
      if (known != id_of_added.end()) {
        *id = known->second;
      } else if (!text->second.empty() && base != bytes.end()) {
        *id = static_cast<TokenId>(base - bytes.begin());
      } else {
        return refuse(fmt::format("tokenizer_config.json {}", name), text->second,
                      "a token of the vocabulary");
      }
    }
    return {};
  }

  bool knows(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < bytes.size(); }

  // Appends the tokens of text without added tokens. Valid UTF-8, normalised.
  void encode_words(std::string_view text, Bpe::Workspace& workspace,
                    std::vector<TokenId>& ids) const {
    while (!text.empty()) {
      const std::size_t size = first_word(pattern, text);
      bpe.encode(text.substr(0, size), workspace, ids);
      text.remove_prefix(size);
    }
  }

  // Appends the tokens of the bytes in [begin, end), in which no added token is recognised before
  // NFC.
  void encode_between(const OriginText& text, std::size_t begin, std::size_t end,
                      Bpe::Workspace& workspace, std::vector<TokenId>& ids) const {
    const OriginText part = nfc ? normalised(text, begin, end) : text.slice(begin, end);
    const std::string_view bytes_of_part = part.bytes();
    std::size_t at = 0;
    for (const AddedTokenMatcher::Match& match : after_nfc.find(part)) {
      encode_words(bytes_of_part.substr(at, match.begin - at), workspace, ids);
      ids.push_back(match.id);
      at = match.end;
    }
    encode_words(bytes_of_part.substr(at), workspace, ids);
  }

  std::vector<TokenId> encode(const OriginText& text) const {
    std::vector<TokenId> ids;
    Bpe::Workspace workspace;
    std::size_t at = 0;
    for (const AddedTokenMatcher::Match& match : before_nfc.find(text)) {
      encode_between(text, at, match.begin, workspace, ids);
      ids.push_back(match.id);
      at = match.end;
    }
    encode_between(text, at, text.size(), workspace, ids);
    return ids;
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& directory) {
  Result<TokenizerFile> file = read_tokenizer_file(directory / "tokenizer.json");
  if (!file) return file.error();
  Result<TokenizerConfig> config = read_tokenizer_config(directory);
  if (!config) return config.error();
  Result<std::vector<AddedToken>> added = merged(file->added_tokens, config->added_tokens);
  if (!added) return added.error();

  auto parts = std::make_unique<Parts>(*std::move(file));
  REPLAYSSM_TRY(parts->add(*std::move(added)));
  REPLAYSSM_TRY(parts->assign_roles(config->special_tokens));
  return Tokenizer(std::move(parts));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::string valid = repaired_utf8(text);
  if (parts_->nfc) {
    std::string composed;
    composed.reserve(valid.size());
    append_nfc(valid, composed);
    valid = std::move(composed);
  }
  std::vector<TokenId> ids;
  Bpe::Workspace workspace;
  parts_->encode_words(valid, workspace, ids);
  return ids;
}

std::vector<TokenId> Tokenizer::encode(const RenderedPrompt& prompt) const {
  return parts_->encode(repaired(OriginText(prompt)));
}

std::vector<TokenId> Tokenizer::encode_with_added_tokens(std::string_view trusted) const {
  return parts_->encode(OriginText(repaired_utf8(trusted), true));
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!(skip_special && is_special(id))) bytes += token_bytes(id);
  }
  return repaired_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return parts_->knows(id) ? std::string_view(parts_->bytes[static_cast<std::size_t>(id)])
                           : std::string_view();
}

bool Tokenizer::is_special(TokenId id) const {
  return parts_->knows(id) && parts_->special[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_added(TokenId id) const {
  return parts_->knows(id) && parts_->added[static_cast<std::size_t>(id)];
}

int Tokenizer::size() const { return static_cast<int>(parts_->bytes.size()); }

std::optional<TokenId> Tokenizer::id_of(std::string_view added_token) const {
  const auto found = parts_->id_of_added.find(std::string(added_token));
  if (found == parts_->id_of_added.end()) return std::nullopt;
  return found->second;
}

std::optional<TokenId> Tokenizer::bos() const { return parts_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return parts_->eos; }
std::optional<TokenId> Tokenizer::pad() const { return parts_->pad; }

}  // namespace replayssm
