// Everything about a model that is text: tokenizer, chat template, output formats, grammars.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/sampling_params.h"
#include "grammar/reasoning_gate.h"
#include "model/config.h"
#include "server/api_error.h"
#include "server/chat_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace replayssm::server {

struct FrontendOptions {
  std::filesystem::path model_path;
  std::filesystem::path chat_template;    // a file; empty: the checkpoint's
  std::string tool_call_parser = "auto";  // or "none", or a name of ToolCallParser::formats()
  std::string reasoning_parser = "auto";  // or "none", "qwen3"
  std::optional<std::uint64_t> random_seed;
};

// The tokens of a conversation.
struct ChatPrompt {
  std::string text;
  std::vector<TokenId> tokens;
  // Where the next request of the same conversation, or another one with the same system message
  // and tools, will part from this one; ascending.
  std::vector<int> branch_points;
  bool opens_reasoning = false;  // the prompt ends inside the model's reasoning
};

// Any number of threads may use one frontend at a time.
class Frontend {
 public:
  // Errors name the file, or the option by its flag. A checkpoint without a chat template loads;
  // its chat requests are refused.
  static Result<std::unique_ptr<Frontend>> load(const FrontendOptions& options,
                                                const ModelConfig& config);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Empty where there is none.
  const std::string& template_source() const { return template_source_; }
  // As resolved from "auto"; "none" where there is none.
  const std::string& tool_call_parser() const { return tool_call_parser_; }
  const std::string& reasoning_parser() const { return reasoning_parser_; }

  // Message text can never become a control token. Errors: 400 with the template's own words.
  std::variant<ChatPrompt, ApiError> render(const ChatRequest& request) const;

  // What the answer is held to; null for OutputFormat::Kind::text. Errors: 400 naming the field and
  // the schema's keyword.
  using Constraint = std::shared_ptr<const grammar::ReasoningGate>;
  std::variant<Constraint, ApiError> constrain(const OutputFormat& format, bool in_reasoning) const;
  // The same where the answer is free text and its calls are held to the strict ones of `tools`;
  // null where none is. Precondition: a tool call parser.
  std::variant<Constraint, ApiError> constrain_calls(const Json& tools, bool in_reasoning) const;

  // Request over checkpoint over defaults; a seed of its own for a request without one.
  std::variant<SamplingParams, ApiError> resolve(const SamplingRequest& request) const;

 private:
  Frontend(Tokenizer tokenizer, GenerationDefaults defaults);

  void find_parsers(const FrontendOptions& options);
  std::variant<RenderedPrompt, ApiError> render(const Json& messages, const Json& tools,
                                                const Json& arguments, bool open_answer) const;
  std::vector<int> branch_points(const ChatRequest& request, const RenderedPrompt& whole,
                                 const std::vector<TokenId>& tokens) const;
  // The grammar that `make` makes, over the vocabulary; `key` tells grammars apart, `field` is to
  // be named in its error.
  using Tokens = std::shared_ptr<grammar::ConstrainedTokens>;
  std::variant<Tokens, ApiError> constrained(
      const std::string& key, const std::string& field,
      const std::function<Result<grammar::Grammar>()>& make) const;
  grammar::ReasoningGate::Tag tag(std::string_view text) const;

  Tokenizer tokenizer_;
  GenerationDefaults defaults_;
  std::optional<ChatTemplate> template_;
  std::string template_source_;
  std::string tool_call_parser_;
  std::string reasoning_parser_;
  std::vector<TokenId> end_tokens_;
  int vocab_size_ = 0;  // ids that the tokenizer and the model's embedding both have
  std::optional<std::uint64_t> random_seed_;
  mutable std::atomic<std::uint64_t> seeds_given_{0};

  // Grammars over the vocabulary remember what they have worked out; by what they were made from.
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const grammar::TokenTrie> vocabulary_;  // made when first needed
  mutable std::map<std::string, std::shared_ptr<grammar::ConstrainedTokens>> grammars_;
};

}  // namespace replayssm::server
