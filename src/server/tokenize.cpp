#include "server/tokenize.h"

#include <utility>

namespace replayssm::server {
namespace {

void respond_later(const std::shared_ptr<Exchange>& exchange, const Json& body) {
  exchange->post([exchange, response = json_response(body)] { exchange->respond(response); });
}

std::variant<std::vector<TokenId>, ApiError> tokens_of(const ApiContext& context,
                                                       const Json& body) {
  if (body.is_object() && body.contains("messages")) {
    ChatRequest request;
    Json chat = body;
    chat.erase("return_token_strs");
    if (auto error = parse_chat_request(chat, request)) return *std::move(error);
    if (auto error = check_model(context, request.generation.model)) return *std::move(error);
    auto rendered = context.frontend.render(request);
    if (auto* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
    return std::get<ChatPrompt>(std::move(rendered)).tokens;
  }
  RequestFields fields(body);
  std::string model;
  bool parse_special = false;
  bool add_special = true;  // this tokenizer has none to add
  fields.read("model", model);
  const Json& prompt = fields.take("prompt");
  fields.read("add_special_tokens", add_special);
  fields.read("parse_special", parse_special);
  fields.ignore({"return_token_strs"});
  fields.refuse_others();
  if (fields.ok() && !prompt.is_string()) {
    fields.fail("prompt", refuse("prompt", shown(prompt), "text, or messages instead").message);
  }
  if (!fields.ok()) return *fields.error();
  if (auto error = check_model(context, model)) return *std::move(error);
  const auto& text = prompt.get_ref<const std::string&>();
  const Tokenizer& tokenizer = context.frontend.tokenizer();
  return parse_special ? tokenizer.encode_with_added_tokens(text) : tokenizer.encode(text);
}

}  // namespace

std::optional<ApiError> tokenize(const std::shared_ptr<ApiContext>& context,
                                 const HttpRequest& request,
                                 const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(request.body);
  if (!body) return invalid_body(body.error().message);
  auto tokens = tokens_of(*context, *body);
  if (auto* error = std::get_if<ApiError>(&tokens)) return std::move(*error);
  const auto& ids = std::get<0>(tokens);
  Json answer = {
      {"tokens", ids}, {"count", ids.size()}, {"max_model_len", context->engine.context_length()}};
  if (body->value("return_token_strs", Json()) == true) {
    Json texts = Json::array();
    for (const TokenId id : ids) texts.push_back(token_text(context->frontend.tokenizer(), id));
    answer["token_strs"] = std::move(texts);
  }
  respond_later(exchange, answer);
  return std::nullopt;
}

std::optional<ApiError> detokenize(const std::shared_ptr<ApiContext>& context,
                                   const HttpRequest& request,
                                   const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(request.body);
  if (!body) return invalid_body(body.error().message);
  RequestFields fields(*body);
  std::string model;
  std::vector<TokenId> tokens;
  fields.read("model", model);
  if (fields.take("tokens").is_null()) {
    fields.fail("tokens", refuse("tokens", "nothing", "a list of token ids").message);
  }
  fields.read_token_ids("tokens", tokens);
  fields.refuse_others();
  if (!fields.ok()) return fields.error();
  if (auto error = check_model(*context, model)) return error;
  if (auto error = check_token_ids(*context, "tokens", tokens)) return error;
  respond_later(exchange, {{"prompt", context->frontend.tokenizer().decode(tokens)}});
  return std::nullopt;
}

std::optional<ApiError> apply_template(const std::shared_ptr<ApiContext>& context,
                                       const HttpRequest& request,
                                       const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(request.body);
  if (!body) return invalid_body(body.error().message);
  ChatRequest chat;
  if (auto error = parse_chat_request(*body, chat)) return error;
  if (auto error = check_model(*context, chat.generation.model)) return error;
  auto rendered = context->frontend.render(chat);
  if (auto* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  respond_later(exchange, {{"prompt", std::get<ChatPrompt>(rendered).text}});
  return std::nullopt;
}

std::optional<ApiError> tokenizer_info(const std::shared_ptr<ApiContext>& context,
                                       const HttpRequest&,
                                       const std::shared_ptr<Exchange>& exchange) {
  const Tokenizer& tokenizer = context->frontend.tokenizer();
  Json info = {{"tokenizer_class", "replayssm"}, {"vocab_size", tokenizer.size()}};
  const auto add = [&](const char* name, std::optional<TokenId> id) {
    info[name] = id ? Json(tokenizer.token_bytes(*id)) : Json();
    info[std::string(name) + "_id"] = id ? Json(*id) : Json();
  };
  add("eos_token", tokenizer.eos());
  add("bos_token", tokenizer.bos());
  add("pad_token", tokenizer.pad());
  info["eos_token_ids"] = context->model.config.eos;
  const std::string& source = context->frontend.template_source();
  info["chat_template"] = source.empty() ? Json() : Json(source);
  info["max_model_len"] = context->engine.context_length();
  exchange->respond(json_response(info));
  return std::nullopt;
}

}  // namespace replayssm::server
