#include "server/frontend.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

#include "server/forced_calls.h"
#include "text/tokenizer_config.h"
#include "text/tool_call_parser.h"

namespace replayssm::server {
namespace {

// Grammars that are remembered.
constexpr std::size_t kMostGrammars = 64;
constexpr std::string_view kOpenTag = "<think>";
constexpr std::string_view kCloseTag = "</think>";

using Gate = grammar::ReasoningGate;

Gate::Start start_of(bool in_reasoning) {
  return in_reasoning ? Gate::Start::in_reasoning : Gate::Start::in_answer;
}

Result<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error{fmt::format("{}: cannot be read", path.string())};
  return std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
}

// The text of the template that `options` name; empty where there is none.
Result<std::string> find_template(const FrontendOptions& options, const TokenizerConfig& config) {
  if (!options.chat_template.empty()) return read_file(options.chat_template);
  const auto file = options.model_path / "chat_template.jinja";
  std::error_code missing;
  if (std::filesystem::exists(file, missing)) return read_file(file);
  return config.chat_template.value_or("");
}

// Whether the text ends with an opened reasoning.
bool ends_in_reasoning(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos && text.substr(0, last + 1).ends_with(kOpenTag);
}

std::size_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

// What `whole` has behind the text of `front`; empty if it does not begin with it.
RenderedPrompt behind(const RenderedPrompt& whole, const RenderedPrompt& front) {
  const std::string text = text_of(front);
  if (!text_of(whole).starts_with(text)) return {};
  RenderedPrompt rest;
  std::size_t skip = text.size();
  for (const PromptPart& part : whole) {
    const std::size_t dropped = std::min(skip, part.text.size());
    skip -= dropped;
    if (dropped < part.text.size()) rest.push_back({part.text.substr(dropped), part.trusted});
  }
  return rest;
}

}  // namespace

Frontend::Frontend(Tokenizer tokenizer, GenerationDefaults defaults)
    : tokenizer_(std::move(tokenizer)), defaults_(std::move(defaults)) {}

Result<std::unique_ptr<Frontend>> Frontend::load(const FrontendOptions& options,
                                                 const ModelConfig& config) {
  auto tokenizer = Tokenizer::load(options.model_path);
  if (!tokenizer) return tokenizer.error();
  auto tokenizer_config = read_tokenizer_config(options.model_path);
  if (!tokenizer_config) return tokenizer_config.error();
  std::unique_ptr<Frontend> frontend(new Frontend(*std::move(tokenizer), config.generation));
  auto source = find_template(options, *tokenizer_config);
  if (!source) return source.error();
  if (!source->empty()) {
    auto parsed = ChatTemplate::parse(*source, tokenizer_config->special_tokens);
    if (!parsed) {
      const std::string from = options.chat_template.empty()
                                   ? options.model_path.string()
                                   : "--chat-template " + options.chat_template.string();
      return Error{fmt::format("{}: {}", from, parsed.error().message)};
    }
    frontend->template_.emplace(*std::move(parsed));
    frontend->template_source_ = *std::move(source);
  }
  frontend->end_tokens_ = config.eos;
  frontend->vocab_size_ = std::min(frontend->tokenizer_.size(), config.vocab_size);
  frontend->random_seed_ = options.random_seed;
  frontend->find_parsers(options);
  return frontend;
}

void Frontend::find_parsers(const FrontendOptions& options) {
  const auto has = [&](std::string_view text) {
    return template_source_.find(text) != std::string::npos;
  };
  tool_call_parser_ = options.tool_call_parser;
  if (tool_call_parser_ == "auto") {
    tool_call_parser_ = has("<function=") ? "qwen3_coder" : has(kToolCallOpen) ? "hermes" : "none";
  }
  reasoning_parser_ = options.reasoning_parser;
  if (reasoning_parser_ == "auto") reasoning_parser_ = has(kOpenTag) ? "qwen3" : "none";
}

std::variant<RenderedPrompt, ApiError> Frontend::render(const Json& messages, const Json& tools,
                                                        const Json& arguments,
                                                        bool open_answer) const {
  if (!template_) {
    return invalid_field("messages",
                         "messages: the model has no chat template; /v1/completions "
                         "takes a prompt as it is");
  }
  Json context = arguments;
  context["messages"] = messages;
  if (!tools.is_null()) context["tools"] = tools;
  context["add_generation_prompt"] = open_answer;
  auto rendered = template_->render(context);
  if (!rendered) return invalid_field("messages", rendered.error().message);
  return *std::move(rendered);
}

std::variant<ChatPrompt, ApiError> Frontend::render(const ChatRequest& request) const {
  const Json& tools = request.tool_choice == ToolChoice::none ? Json() : request.tools;
  auto rendered =
      render(request.messages, tools, request.template_arguments, request.add_generation_prompt);
  if (auto* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  const auto& parts = std::get<RenderedPrompt>(rendered);
  ChatPrompt prompt;
  prompt.text = text_of(parts);
  prompt.tokens = tokenizer_.encode(parts);
  if (prompt.tokens.empty()) {
    return invalid_field("messages", "messages: the chat template gives no text for them");
  }
  prompt.branch_points = branch_points(request, parts, prompt.tokens);
  prompt.opens_reasoning = reasoning_parser_ != "none" && request.add_generation_prompt &&
                           !parts.empty() && parts.back().trusted && ends_in_reasoning(prompt.text);
  return prompt;
}

// Hints for the cache; where a template cannot be asked there are fewer of them.
std::vector<int> Frontend::branch_points(const ChatRequest& request, const RenderedPrompt& whole,
                                         const std::vector<TokenId>& tokens) const {
  std::vector<int> points;
  const Json& tools = request.tool_choice == ToolChoice::none ? Json() : request.tools;
  // The system message and the tools.
  Json first = Json::array();
  if (request.messages[0].value("role", Json()) == "system") first.push_back(request.messages[0]);
  if (!first.empty() || !tools.is_null()) {
    const auto system = render(first, tools, request.template_arguments, false);
    if (const auto* parts = std::get_if<RenderedPrompt>(&system)) {
      points.push_back(static_cast<int>(common_prefix(tokens, tokenizer_.encode(*parts))));
    }
  }
  // The messages without the beginning of the answer.
  const auto closed = render(request.messages, tools, request.template_arguments, false);
  if (const auto* parts = std::get_if<RenderedPrompt>(&closed)) {
    const std::vector<TokenId> opener = tokenizer_.encode(behind(whole, *parts));
    if (!opener.empty() && opener.size() < tokens.size() &&
        std::equal(opener.rbegin(), opener.rend(), tokens.rbegin())) {
      points.push_back(static_cast<int>(tokens.size() - opener.size()));
    }
  }
  std::erase_if(points,
                [&](int point) { return point < 1 || point >= static_cast<int>(tokens.size()); });
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

std::variant<Frontend::Tokens, ApiError> Frontend::constrained(
    const std::string& key, const std::string& field,
    const std::function<Result<grammar::Grammar>()>& make) const {
  {
    const std::lock_guard lock(mutex_);
    const auto known = grammars_.find(key);
    if (known != grammars_.end()) return known->second;
    if (!vocabulary_) {
      std::vector<std::string_view> bytes(static_cast<std::size_t>(vocab_size_));
      for (std::size_t id = 0; id < bytes.size(); ++id) {
        const auto token = static_cast<TokenId>(id);
        if (!tokenizer_.is_added(token)) bytes[id] = tokenizer_.token_bytes(token);
      }
      vocabulary_ = std::make_shared<const grammar::TokenTrie>(bytes, end_tokens_);
    }
  }
  auto made = make();
  if (!made) return invalid_field(field, fmt::format("{}: {}", field, made.error().message));
  const std::lock_guard lock(mutex_);
  if (grammars_.size() >= kMostGrammars) grammars_.clear();
  auto& entry = grammars_[key];
  if (!entry) {
    entry = std::make_shared<grammar::ConstrainedTokens>(*std::move(made), vocabulary_);
  }
  return entry;
}

grammar::ReasoningGate::Tag Frontend::tag(std::string_view text) const {
  auto token = tokenizer_.id_of(text);
  if (token && *token >= vocab_size_) token.reset();
  return {std::string(text), token};
}

std::variant<Frontend::Constraint, ApiError> Frontend::constrain(const OutputFormat& format,
                                                                 bool in_reasoning) const {
  if (format.kind == OutputFormat::Kind::text) return Constraint();
  const bool any_object = format.kind == OutputFormat::Kind::json_object;
  auto tokens = constrained(any_object ? "" : to_text(format.schema), format.field, [&] {
    return any_object ? Result<grammar::Grammar>(grammar::Grammar::json_object())
                      : grammar::Grammar::from_schema(format.schema);
  });
  if (auto* error = std::get_if<ApiError>(&tokens)) return std::move(*error);
  return std::make_shared<const Gate>(std::get<Tokens>(std::move(tokens)), start_of(in_reasoning),
                                      tag(kCloseTag));
}

std::variant<Frontend::Constraint, ApiError> Frontend::constrain_calls(const Json& tools,
                                                                       bool in_reasoning) const {
  const std::vector<grammar::CallableTool> callable = callable_tools(tools);
  if (std::none_of(callable.begin(), callable.end(),
                   [](const auto& tool) { return tool.strict; })) {
    return Constraint();
  }
  const Gate::Calls calls = {tag(kToolCallOpen), tag(kToolCallClose)};
  auto tokens = constrained("calls " + to_text(tools), "tools", [&] {
    return grammar::Grammar::tool_call(tool_call_parser_, callable,
                                       calls.close.token ? "" : calls.close.text);
  });
  if (auto* error = std::get_if<ApiError>(&tokens)) return std::move(*error);
  return std::make_shared<const Gate>(std::get<Tokens>(std::move(tokens)), start_of(in_reasoning),
                                      tag(kCloseTag), calls);
}

std::variant<SamplingParams, ApiError> Frontend::resolve(const SamplingRequest& request) const {
  // 53 bits, so that a seed survives JSON readers that know doubles only.
  thread_local std::random_device device;
  const std::uint64_t fallback =
      random_seed_ ? *random_seed_ + seeds_given_.fetch_add(1, std::memory_order_relaxed)
                   : ((std::uint64_t{device()} << 32) | device()) >> 11;
  auto params = resolve_sampling(request, defaults_, fallback);
  if (!params) return invalid_field(params.error());
  return *params;
}

}  // namespace replayssm::server
