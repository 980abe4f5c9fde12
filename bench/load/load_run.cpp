#include "load/load_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "load/event_splitter.h"

namespace replayssm::load {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::use_awaitable;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::size_t kReadBytes = 16384;
constexpr std::size_t kErrorBytes = 4096;  // of an error's body, kept for the message

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A connection to the server, made when it is needed and kept.
class Connection {
 public:
  explicit Connection(const HttpUrl& url) : url_(url) {}

  beast::tcp_stream& stream() { return *stream_; }
  beast::flat_buffer& buffer() { return buffer_; }
  bool open() const { return stream_.has_value(); }

  asio::awaitable<void> connect(double timeout) {
    const auto executor = co_await asio::this_coro::executor;
    asio::ip::tcp::resolver resolver(executor);
    const auto found = co_await resolver.async_resolve(url_.host, url_.port, use_awaitable);
    buffer_.clear();
    stream_.emplace(executor);
    stream_->expires_after(duration_of(timeout));
    co_await stream_->async_connect(found, use_awaitable);
    stream_->socket().set_option(asio::ip::tcp::no_delay(true));
  }

  void close() { stream_.reset(); }

 private:
  const HttpUrl& url_;
  std::optional<beast::tcp_stream> stream_;
  beast::flat_buffer buffer_;
};

// Without the place in the library's source that it throws with.
std::string reason_of(const std::exception& error) {
  const auto* const system = dynamic_cast<const boost::system::system_error*>(&error);
  return system == nullptr ? error.what() : system->code().message();
}

http::request<http::string_body> make_request(const HttpUrl& url, const std::string& api_key,
                                              http::verb verb, const std::string& target,
                                              std::string body) {
  http::request<http::string_body> request(verb, url.path + target, 11);
  request.set(http::field::host, url.authority());
  request.set(http::field::user_agent, "replayssm-bench");
  if (!api_key.empty()) request.set(http::field::authorization, "Bearer " + api_key);
  if (!body.empty()) request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();
  return request;
}

std::string request_body(const LoadOptions& options, std::size_t index) {
  json body = {{"model", options.model},
               {"max_tokens", options.max_tokens},
               {"temperature", options.temperature},
               {"seed", options.seed + index},
               {"ignore_eos", options.ignore_eos},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (options.endpoint == Endpoint::chat) {
    body["messages"] = {{{"role", "user"}, {"content", options.prompts[index]}}};
  } else {
    body["prompt"] = options.prompts[index];
  }
  return body.dump();
}

// Whether a choice of a chunk carries something that a person would see.
bool has_text(const json& choice) {
  const auto filled = [](const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && !found->is_null() && !found->empty() && *found != "";
  };
  if (filled(choice, "text")) return true;
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return false;
  return filled(*delta, "content") || filled(*delta, "reasoning_content") ||
         filled(*delta, "tool_calls");
}

std::string message_of(unsigned status, const std::string& body) {
  const json parsed = json::parse(body, nullptr, false);
  const bool ours = parsed.is_object() && parsed.contains("error") && parsed["error"].is_object() &&
                    parsed["error"].contains("message") && parsed["error"]["message"].is_string();
  return fmt::format("HTTP {}: {}", status,
                     ours ? parsed["error"]["message"].get<std::string>() : body);
}

// The events of one streamed answer.
class AnswerReader {
 public:
  AnswerReader(LoadSample& sample, Clock::time_point start) : sample_(sample), start_(start) {}

  void take(std::string_view bytes) {
    const double now = seconds_since(start_);
    for (const std::string& data : splitter_.push(bytes)) take_event(data, now);
  }

  void finish() {
    if (sample_.error.empty() && !done_) sample_.error = "the stream ended before [DONE]";
  }

 private:
  void take_event(const std::string& data, double now) {
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const json chunk = json::parse(data, nullptr, false);
    if (!chunk.is_object()) {
      sample_.error = "an event is not a JSON object";
      return;
    }
    if (const auto error = chunk.find("error"); error != chunk.end()) {
      sample_.error = error->is_object() ? error->value("message", error->dump()) : error->dump();
    }
    if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) {
      sample_.prompt_tokens = usage->value("prompt_tokens", 0);
      sample_.completion_tokens = usage->value("completion_tokens", 0);
      const auto details = usage->find("prompt_tokens_details");
      if (details != usage->end() && details->is_object()) {
        sample_.cached_tokens = details->value("cached_tokens", 0);
      }
    }
    const auto choices = chunk.find("choices");
    if (choices == chunk.end() || !std::any_of(choices->begin(), choices->end(), has_text)) return;
    if (sample_.first > 0) {
      sample_.gaps.push_back(now - sample_.last);
    } else {
      sample_.first = now;
    }
    sample_.last = now;
  }

  EventSplitter splitter_;
  LoadSample& sample_;
  Clock::time_point start_;
  bool done_ = false;
};

// What all clients of a run share; one thread runs them.
struct Run {
  const LoadOptions& options;
  const std::function<bool(std::size_t)>& proceed;
  asio::io_context& context;
  LoadResult result;
  std::size_t next = 0;
  int clients = 0;
  Clock::time_point start;

  void tick() {
    if (result.interrupted || proceed(result.samples.size())) return;
    result.interrupted = true;
    context.stop();
  }
};

// Reads one response; false if nothing came because the server had closed an idle connection.
asio::awaitable<bool> read_answer(Connection& connection, const LoadOptions& options,
                                  AnswerReader& reader, LoadSample& sample) {
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  connection.stream().expires_after(duration_of(options.timeout));
  boost::system::error_code failed;
  co_await http::async_read_header(connection.stream(), connection.buffer(), parser,
                                   asio::redirect_error(use_awaitable, failed));
  if (failed == http::error::end_of_stream || failed == asio::error::connection_reset) {
    co_return false;
  }
  if (failed) throw boost::system::system_error(failed);
  const bool streamed = parser.get().result() == http::status::ok;
  std::string body;
  std::array<char, kReadBytes> bytes;
  while (!parser.is_done()) {
    parser.get().body().data = bytes.data();
    parser.get().body().size = bytes.size();
    connection.stream().expires_after(duration_of(options.timeout));
    // One read of the socket at a time: the moment at which a text came counts.
    co_await http::async_read_some(connection.stream(), connection.buffer(), parser,
                                   asio::redirect_error(use_awaitable, failed));
    if (failed && failed != http::error::need_buffer) throw boost::system::system_error(failed);
    const std::string_view read(bytes.data(), bytes.size() - parser.get().body().size);
    if (streamed) {
      reader.take(read);
    } else if (body.size() < kErrorBytes) {
      body += read;
    }
  }
  if (!streamed) sample.error = message_of(parser.get().result_int(), body);
  if (streamed) reader.finish();
  if (!parser.get().keep_alive()) connection.close();
  co_return true;
}

asio::awaitable<LoadSample> send_one(Run& run, Connection& connection, std::size_t index) {
  const LoadOptions& options = run.options;
  const std::string target =
      options.endpoint == Endpoint::chat ? "/v1/chat/completions" : "/v1/completions";
  const auto request = make_request(options.url, options.api_key, http::verb::post, target,
                                    request_body(options, index));
  LoadSample sample;
  const Clock::time_point start = Clock::now();
  try {
    for (bool answered = false; !answered;) {
      const bool kept = connection.open();
      if (!kept) co_await connection.connect(options.timeout);
      AnswerReader reader(sample, start);
      connection.stream().expires_after(duration_of(options.timeout));
      boost::system::error_code failed;
      co_await http::async_write(connection.stream(), request,
                                 asio::redirect_error(use_awaitable, failed));
      if (failed && !kept) throw boost::system::system_error(failed);
      if (!failed) answered = co_await read_answer(connection, options, reader, sample);
      if (!answered) {
        connection.close();
        if (!kept) throw std::runtime_error("the server closed the connection without an answer");
      }
    }
  } catch (const std::exception& error) {
    sample.error = reason_of(error);
    connection.close();
  }
  sample.total = seconds_since(start);
  co_return sample;
}

asio::awaitable<void> client(Run& run) {
  Connection connection(run.options.url);
  while (run.next < run.options.prompts.size() && !run.result.interrupted) {
    const std::size_t index = run.next++;
    run.result.samples.push_back(co_await send_one(run, connection, index));
    run.result.seconds = seconds_since(run.start);
    run.tick();
  }
  --run.clients;
}

asio::awaitable<void> clock(Run& run) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (run.clients > 0 && !run.result.interrupted) {
    timer.expires_after(std::chrono::milliseconds(100));
    co_await timer.async_wait(use_awaitable);
    run.tick();
  }
}

asio::awaitable<std::string> fetch(const HttpUrl& url, const std::string& api_key,
                                   const std::string& target) {
  constexpr double kTimeout = 10;
  Connection connection(url);
  co_await connection.connect(kTimeout);
  const auto request = make_request(url, api_key, http::verb::get, target, {});
  co_await http::async_write(connection.stream(), request, use_awaitable);
  http::response<http::string_body> response;
  co_await http::async_read(connection.stream(), connection.buffer(), response, use_awaitable);
  if (response.result() != http::status::ok) {
    throw std::runtime_error(message_of(response.result_int(), response.body()));
  }
  co_return std::move(response.body());
}

}  // namespace

Result<std::string> first_model(const HttpUrl& url, const std::string& api_key) {
  asio::io_context context;
  std::string body;
  std::string problem;
  asio::co_spawn(context, fetch(url, api_key, "/v1/models"),
                 [&](const std::exception_ptr& thrown, std::string text) {
                   body = std::move(text);
                   try {
                     if (thrown) std::rethrow_exception(thrown);
                   } catch (const std::exception& error) {
                     problem = reason_of(error);
                   }
                 });
  context.run();
  const std::string where = "--url: GET " + url.path + "/v1/models at " + url.authority();
  if (!problem.empty()) return Error{where + ": " + problem};
  const json models = json::parse(body, nullptr, false);
  if (models.is_object() && models.contains("data") && models["data"].is_array() &&
      !models["data"].empty() && models["data"][0].is_object() &&
      models["data"][0].contains("id") && models["data"][0]["id"].is_string()) {
    return models["data"][0]["id"].get<std::string>();
  }
  return Error{where + ": the answer lists no model"};
}

LoadResult run_load(const LoadOptions& options, const std::function<bool(std::size_t)>& proceed) {
  asio::io_context context(1);
  Run run{options, proceed, context, {}, 0, 0, Clock::now()};
  run.clients = static_cast<int>(
      std::min(static_cast<std::size_t>(options.concurrency), options.prompts.size()));
  for (int i = 0, count = run.clients; i < count; ++i) {
    asio::co_spawn(context, client(run), asio::detached);
  }
  asio::co_spawn(context, clock(run), asio::detached);
  context.run();
  return std::move(run.result);
}

}  // namespace replayssm::load
