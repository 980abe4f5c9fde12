#include "server/chat_format.h"

#include <utility>

namespace replayssm::server {
namespace {

Json reason_json(const std::string& finish_reason) {
  return finish_reason.empty() ? Json() : Json(finish_reason);
}

// The calls of a whole answer, from their pieces.
Json whole_calls(const std::vector<ToolCallEvent>& events) {
  Json calls = Json::array();
  for (const ToolCallEvent& event : events) {
    if (event.kind == ToolCallEvent::Kind::begin) {
      calls.push_back({{"id", event.id},
                       {"type", "function"},
                       {"function", {{"name", event.name}, {"arguments", ""}}}});
    } else {
      Json& arguments = calls.at(static_cast<std::size_t>(event.index))["function"]["arguments"];
      arguments.get_ref<std::string&>() += event.text;
    }
  }
  return calls;
}

Json call_deltas(const std::vector<ToolCallEvent>& events) {
  Json calls = Json::array();
  for (const ToolCallEvent& event : events) {
    if (event.kind == ToolCallEvent::Kind::begin) {
      calls.push_back({{"index", event.index},
                       {"id", event.id},
                       {"type", "function"},
                       {"function", {{"name", event.name}, {"arguments", ""}}}});
    } else {
      calls.push_back({{"index", event.index}, {"function", {{"arguments", event.text}}}});
    }
  }
  return calls;
}

}  // namespace

ChatFormat::ChatFormat(const Tokenizer& tokenizer, std::string model, bool logprobs)
    : tokenizer_(tokenizer),
      id_(random_id("chatcmpl-")),
      model_(std::move(model)),
      created_(unix_time()),
      logprobs_(logprobs) {}

Json ChatFormat::head(bool streamed) const {
  return {{"id", id_},
          {"object", streamed ? "chat.completion.chunk" : "chat.completion"},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", kSystemFingerprint}};
}

Json ChatFormat::opening(int choice) {
  return {{"index", choice},
          {"delta", {{"role", "assistant"}, {"content", ""}}},
          {"logprobs", Json()},
          {"finish_reason", Json()}};
}

Json ChatFormat::delta(int choice, const ChoiceDelta& delta, const std::string& finish_reason) {
  Json fields = Json::object();
  if (!delta.reasoning.empty()) fields["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty()) fields["content"] = delta.content;
  if (!delta.calls.empty()) fields["tool_calls"] = call_deltas(delta.calls);
  Json logprobs = delta.tokens.empty() ? Json() : logprobs_json(delta.tokens);
  return {{"index", choice},
          {"delta", std::move(fields)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", reason_json(finish_reason)}};
}

Json ChatFormat::whole(int choice, const ChoiceDelta& all, const std::string& finish_reason) {
  Json message = {{"role", "assistant"}, {"content", all.content}, {"refusal", Json()}};
  if (!all.reasoning.empty()) message["reasoning_content"] = all.reasoning;
  if (!all.calls.empty()) {
    if (all.content.empty()) message["content"] = Json();
    message["tool_calls"] = whole_calls(all.calls);
  }
  return {{"index", choice},
          {"message", std::move(message)},
          {"logprobs", logprobs_ ? logprobs_json(all.tokens) : Json()},
          {"finish_reason", reason_json(finish_reason)}};
}

Json ChatFormat::logprobs_json(const std::vector<ScoredToken>& tokens) const {
  const auto entry = [&](TokenId token, double logprob) {
    Json bytes = Json::array();
    for (const char byte : tokenizer_.token_bytes(token)) {
      bytes.push_back(static_cast<unsigned char>(byte));
    }
    return Json{{"token", token_text(tokenizer_, token)},
                {"logprob", finite_logprob(logprob)},
                {"bytes", std::move(bytes)}};
  };
  Json content = Json::array();
  for (const ScoredToken& scored : tokens) {
    Json item = entry(scored.token, scored.logprobs.logprob);
    Json top = Json::array();
    for (const TokenLogprob& other : scored.logprobs.top) {
      top.push_back(entry(other.token, other.logprob));
    }
    item["top_logprobs"] = std::move(top);
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", Json()}};
}

}  // namespace replayssm::server
