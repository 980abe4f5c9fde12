// Constrained decoding: which tokens may come next so that the text is JSON, or fits a JSON schema.
//
//   Grammar            what texts are allowed; made once from a schema
//   ConstrainedTokens  a grammar over a vocabulary, with everything worked out so far
//   GrammarState       where one sequence is
//
// The subset of JSON schema. Every keyword is enforced, is one of the annotations, or is refused by
// name and path:
//
//   any type      type (also a list), enum, const, anyOf, allOf, $ref to "#" and "#/..", $defs;
//                 oneOf where no two of its schemas can hold at once (different types, or a
//                 required member with different constants)
//   object        properties, required, additionalProperties
//   array         items, prefixItems, minItems, maxItems
//   string        minLength, maxLength, or pattern (regex.h), or format (string_format.h)
//   number        minimum, maximum, exclusiveMinimum, exclusiveMaximum
//   annotations   title, description, default, examples, deprecated, readOnly, writeOnly, $schema,
//                 $id, $comment, discriminator, x-..
//
// Every document that comes out fits the schema; not every document that fits can come out:
// members come in the order of `properties`, members of other names after them; an object with
// `properties` and no additionalProperties has no other members; keywords of one type without
// `type` mean that type; enum and const strings have one spelling; numbers have at most 18 digits
// before the point and 20 behind it; at most 64 arrays and objects inside each other; white space
// in one place is a space or tab, or up to two line breaks with up to 32 of them, none before `:`
// and
// `,` and none at the end. A member of another name may come twice.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/strong_id.h"
#include "grammar/token_trie.h"

namespace replayssm::grammar {

struct Program;
class WorkAllowance;

// A tool that may be called. Only a strict one has its arguments held to `parameters`, a JSON
// schema of an object or null (no parameters).
struct CallableTool {
  std::string name;
  nlohmann::ordered_json parameters;
  bool strict = false;
};

// Immutable; copies share.
class Grammar {
 public:
  // The order of the schema's members is that of the document's.
  static Result<Grammar> from_schema(const nlohmann::ordered_json& schema);
  // Any JSON object.
  static Grammar json_object();
  // What stands between <tool_call> and </tool_call> in a format of --tool-call-parser, and then
  // `closing_tag`: one call of one of the tools. In qwen3_coder a value that is text cannot contain
  // `</parameter`, and `enum` and `const` are the only keywords for it; a value that may be text or
  // something other than null is refused.
  static Result<Grammar> tool_call(std::string_view format, std::span<const CallableTool> tools,
                                   std::string_view closing_tag);

  const Program& program() const { return *program_; }

 private:
  explicit Grammar(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

// May be used by several threads; calls that need the same one wait for each other.
class ConstrainedTokens {
 public:
  ConstrainedTokens(Grammar grammar, std::shared_ptr<const TokenTrie> vocabulary);
  ~ConstrainedTokens();
  ConstrainedTokens(const ConstrainedTokens&) = delete;
  ConstrainedTokens& operator=(const ConstrainedTokens&) = delete;

  const TokenTrie& vocabulary() const { return *vocabulary_; }

 private:
  friend class GrammarState;
  struct Memory;

  Grammar grammar_;
  std::shared_ptr<const TokenTrie> vocabulary_;
  std::unique_ptr<Memory> memory_;
};

// Where one sequence is. A copy is a fork: it goes its own way. Not for two threads at a time.
//
// A request pays for what its sequences are the first to need of the grammar (work_allowance.h);
// copies share the allowance. A schema that asks for more is too costly, and the error says so.
class GrammarState {
 public:
  explicit GrammarState(std::shared_ptr<ConstrainedTokens> tokens);

  // The beginning of another text of the same request.
  GrammarState restarted() const;

  // The state after `position`, which position() of a state of the same grammar gave. An error if
  // the grammar does not accept it.
  static Result<GrammarState> at(std::shared_ptr<ConstrainedTokens> tokens,
                                 std::string_view position);

  // Takes a token that was chosen. An error, and no change, if it is not allowed here or the schema
  // is too costly. After an end token nothing is allowed.
  Status accept(TokenId id);
  // The same for text.
  Status accept(std::string_view bytes);

  // Bit `id % 32` of word `id / 32` says whether token `id` is allowed. All of `bits` is written;
  // it has at least vocabulary().mask_words() words. While a text can still be completed, some
  // token is allowed if the vocabulary has every byte as a token. An error if the schema is too
  // costly; what is written then means nothing.
  Status fill_mask(std::span<std::uint32_t> bits) const;

  // The text so far is a whole document; an end token is allowed.
  bool finished() const;
  // Nothing but an end token is allowed, or one was taken.
  bool complete() const;
  // An end token was taken.
  bool ended() const { return ended_; }

  // What its request has asked for of the allowance so far: places of the automaton.
  std::uint64_t work() const;

  // The text so far; enough, with the grammar, to go on elsewhere.
  const std::string& position() const { return text_; }

 private:
  struct Mark;

  std::uint32_t current() const;

  std::shared_ptr<ConstrainedTokens> tokens_;
  std::shared_ptr<WorkAllowance> work_;  // guarded by the tokens' mutex
  std::string text_;
  bool ended_ = false;
  // A place in the text from which the state can be found again; null is the beginning.
  std::shared_ptr<const Mark> mark_;
  // A state of the shared automaton, valid in that epoch of it.
  mutable std::uint32_t state_ = 0;
  mutable std::uint64_t epoch_ = 0;
};

}  // namespace replayssm::grammar
