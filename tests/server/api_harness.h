// The interface without sockets, on the tokenizer and template of models/tiny: a request in, what
// its exchange received out.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "scripted_engine.h"
#include "server/api.h"
#include "server/log.h"
#include "source_dir.h"

namespace replayssm::server {

inline std::filesystem::path tiny_model() { return source_dir() / "models/tiny"; }

// Made once, with the flags' defaults.
inline const Frontend& tiny_frontend() {
  static const std::unique_ptr<Frontend> frontend = [] {
    set_log_level(LogLevel::off);
    FrontendOptions options;
    options.model_path = tiny_model();
    return Frontend::load(options, load_config(tiny_model()).value()).value();
  }();
  return *frontend;
}

// A frontend whose template opens the reasoning, as Qwen3.5's does, with the tokenizer of tiny.
inline const Frontend& thinking_frontend() {
  static const std::unique_ptr<Frontend> frontend = [] {
    set_log_level(LogLevel::off);
    FrontendOptions options;
    options.model_path = tiny_model();
    options.chat_template = source_dir() / "tests/data/server/thinking.jinja";
    return Frontend::load(options, load_config(tiny_model()).value()).value();
  }();
  return *frontend;
}

inline ServedModel tiny_served(int context_length = 4096) {
  ServedModel model;
  model.name = "tiny";
  model.path = tiny_model();
  model.config = load_config(tiny_model()).value();
  model.context_length = context_length;
  model.created = 1;
  return model;
}

// Ordinary text as the tokens of it; a script that says it.
inline Script says(std::string_view text, bool ends = true) {
  Script script;
  script.tokens = tiny_frontend().tokenizer().encode_with_added_tokens(text);
  script.ends = ends;
  return script;
}

inline ScriptedEngine::Writer saying(std::string text) {
  return [text = std::move(text)](const GenerationRequest&, int) { return says(text); };
}

inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kText = "/v1/completions";

struct Received {
  HttpResponse response;  // status 0: nothing yet
  std::string stream;
  bool streamed = false;
  bool ended = false;
  Exchange::After after = Exchange::After::keep_open;
};

class RecordingExchange final : public Exchange {
 public:
  explicit RecordingExchange(Received& received) : received_(received) {
    received_.response.status = 0;
  }

  // Runs what was posted; in a test everything is one thread.
  bool run() {
    bool any = false;
    while (run_one()) any = true;
    return any;
  }
  bool run_one() {
    if (work_.empty()) return false;
    const auto work = std::move(work_.front());
    work_.pop_front();
    work();
    return true;
  }
  std::size_t posted() const { return work_.size(); }
  void go_away() {
    closed_ = true;
    if (auto callback = std::exchange(on_closed_, nullptr)) callback();
  }
  void be_silent() {
    if (on_silence_) on_silence_();
  }

  void post(std::function<void()> work) override { work_.push_back(std::move(work)); }
  void respond(HttpResponse response) override {
    EXPECT_EQ(received_.response.status, 0) << "two responses";
    EXPECT_FALSE(received_.streamed);
    received_.response = std::move(response);
    received_.ended = true;
  }
  void begin_stream() override {
    EXPECT_EQ(received_.response.status, 0);
    received_.response.status = 200;
    received_.streamed = true;
  }
  void send(std::string events) override {
    EXPECT_TRUE(received_.streamed);
    EXPECT_FALSE(received_.ended);
    received_.stream += events;
  }
  void end_stream(After after) override {
    EXPECT_FALSE(received_.ended);
    received_.ended = true;
    received_.after = after;
  }
  void on_closed(std::function<void()> callback) override { on_closed_ = std::move(callback); }
  void on_silence(std::function<void()> callback) override { on_silence_ = std::move(callback); }
  bool closed() const override { return closed_; }

 private:
  Received& received_;
  std::deque<std::function<void()>> work_;
  std::function<void()> on_closed_;
  std::function<void()> on_silence_;
  bool closed_ = false;
};

struct ApiHarness {
  explicit ApiHarness(ScriptedEngine::Writer writer = {}, ApiOptions options = {},
                      const Frontend& frontend = tiny_frontend(), int context_length = 4096)
      : engine(std::move(writer), context_length),
        api(engine, frontend, tiny_served(context_length), std::move(options),
            [](std::function<void()> work) { work(); }) {}

  // Sends, and steps the engine until there is an answer.
  Received send(HttpRequest request) {
    Received received;
    const auto exchange = std::make_shared<RecordingExchange>(received);
    api.handle(std::move(request), exchange);
    for (int i = 0; i < 100000 && !received.ended; ++i) {
      const bool worked = exchange->run();
      const bool stepped = engine.step();
      if (!worked && !stepped && !exchange->run()) break;
    }
    while (engine.step() || exchange->run()) {
    }
    return received;
  }
  Received get(const std::string& path) { return send({"GET", path, "", "", "", "", "id"}); }
  Received post(const std::string& path, const Json& body) {
    return send({"POST", path, "", to_text(body), "", "", "id"});
  }
  Received post_text(const std::string& path, const std::string& body) {
    return send({"POST", path, "", body, "", "", "id"});
  }

  ScriptedEngine engine;
  Api api;
};

inline Json body_json(const Received& received) {
  const auto parsed = parse_json(received.response.body);
  EXPECT_TRUE(parsed.ok()) << received.response.body;
  return parsed.ok() ? *parsed : Json();
}

// The data of the events, "[DONE]" left out; comments are skipped.
inline std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> events;
  std::size_t at = 0;
  while (at < stream.size()) {
    const std::size_t end = stream.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "an event without its end: " << stream.substr(at);
      break;
    }
    const std::string event = stream.substr(at, end - at);
    at = end + 2;
    if (event.starts_with(":") || event == "data: [DONE]") continue;
    if (!event.starts_with("data: ")) {
      ADD_FAILURE() << "not an event: " << event;
      continue;
    }
    const auto parsed = parse_json(event.substr(6));
    EXPECT_TRUE(parsed.ok()) << event;
    if (parsed.ok()) events.push_back(*parsed);
  }
  return events;
}

// What a client makes of a stream, for comparison with the whole answer.
struct Assembled {
  std::string content;
  std::string reasoning;
  Json tool_calls = Json::array();
  Json logprobs = Json::array();
  std::vector<std::string> finish_reasons;
  Json usage;
  bool usage_before_finish = false;
};

inline void add_call(Json& calls, const Json& delta) {
  const auto index = delta["index"].get<std::size_t>();
  while (calls.size() <= index) {
    calls.push_back({{"function", {{"name", ""}, {"arguments", ""}}}});
  }
  Json& call = calls[index];
  if (delta.contains("id")) call["id"] = delta["id"];
  if (delta.contains("type")) call["type"] = delta["type"];
  const Json& function = delta["function"];
  for (const char* field : {"name", "arguments"}) {
    if (function.contains(field)) {
      call["function"][field].get_ref<std::string&>() += function[field].get<std::string>();
    }
  }
}

inline Assembled assemble(const std::string& stream, int choice = 0) {
  Assembled all;
  for (const Json& event : events_of(stream)) {
    if (event.contains("usage") && !event["usage"].is_null()) {
      all.usage_before_finish |= all.finish_reasons.empty();
      all.usage = event["usage"];
    }
    if (!event.contains("choices")) continue;
    for (const Json& each : event["choices"]) {
      if (each["index"] != choice) continue;
      if (each.contains("text")) all.content += each["text"].get<std::string>();
      const Json delta = each.value("delta", Json::object());
      if (delta.contains("content") && delta["content"].is_string()) {
        all.content += delta["content"].get<std::string>();
      }
      if (delta.contains("reasoning_content")) {
        all.reasoning += delta["reasoning_content"].get<std::string>();
      }
      if (delta.contains("tool_calls")) {
        for (const Json& call : delta["tool_calls"]) add_call(all.tool_calls, call);
      }
      const Json logprobs = each.value("logprobs", Json());
      if (logprobs.is_object() && logprobs.contains("content")) {
        for (const Json& entry : logprobs["content"]) all.logprobs.push_back(entry);
      }
      if (!each["finish_reason"].is_null()) {
        all.finish_reasons.push_back(each["finish_reason"].get<std::string>());
      }
    }
  }
  return all;
}

inline Json chat_body(std::string_view message, bool stream = false) {
  return {{"model", "tiny"},
          {"messages", Json::array({{{"role", "user"}, {"content", message}}})},
          {"stream", stream}};
}

}  // namespace replayssm::server
