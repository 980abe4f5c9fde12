#include "server/http_exchange.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/beast/http/write.hpp>
#include <exception>
#include <sstream>
#include <utility>

#include "server/log.h"

namespace replayssm::server {

namespace http = boost::beast::http;

namespace {

std::string header_text(const http::response_header<>& header) {
  std::ostringstream text;
  text << header;
  return text.str();
}

}  // namespace

Connection::HttpExchange::HttpExchange(std::shared_ptr<Connection> connection,
                                       const HttpRequest& request, unsigned version,
                                       bool keep_alive)
    : counted_(connection->host_.exchange_objects),
      connection_(std::move(connection)),
      work_(connection_->socket_.get_executor()),
      request_id_(request.request_id),
      origin_(request.origin),
      head_(request.method == "HEAD"),
      chunked_(version >= 11),
      keep_alive_(keep_alive) {
  ++connection_->host_.exchanges;
}

Connection::HttpExchange::~HttpExchange() { detach(); }

void Connection::HttpExchange::post(std::function<void()> work) {
  boost::asio::post(work_.get_executor(), [self = shared_from_this(), work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {  // no memory
      log(LogLevel::error, "{}: dropped: {}", self->request_id_, error.what());
      if (const auto connection = self->connection_) connection->close();
    }
  });
}

void Connection::HttpExchange::respond(HttpResponse response) {
  if (!connection_ || begun_) return;
  begun_ = true;
  Header header = make_header(response.status, response.content_type);
  for (const auto& [name, value] : response.headers) header.set(name, value);
  if (response.status != 204) {
    header.set(http::field::content_length, std::to_string(response.body.size()));
  }
  const auto elapsed = std::chrono::steady_clock::now() - started_;
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed);
  header.set("openai-processing-ms", std::to_string(milliseconds.count()));
  write(header_text(header) + (head_ ? "" : response.body));
  finish(keep_alive_);
}

void Connection::HttpExchange::begin_stream() {
  if (!connection_ || begun_) return;
  begun_ = true;
  if (!chunked_) keep_alive_ = false;
  Header header = make_header(200, "text/event-stream; charset=utf-8");
  header.set(http::field::cache_control, "no-cache");
  header.set("X-Accel-Buffering", "no");
  if (chunked_) header.set(http::field::transfer_encoding, "chunked");
  write(header_text(header));
}

void Connection::HttpExchange::send(std::string events) {
  if (!connection_ || events.empty()) return;
  write(chunked_ ? fmt::format("{:x}\r\n{}\r\n", events.size(), events) : std::move(events));
}

void Connection::HttpExchange::end_stream(After after) {
  if (!connection_) return;
  if (chunked_) write("0\r\n\r\n");
  finish(keep_alive_ && after == After::keep_open);
}

// Writing may close the connection, which ends this exchange.
void Connection::HttpExchange::write(std::string bytes) {
  const auto connection = connection_;
  if (connection) connection->write(std::move(bytes));
}

void Connection::HttpExchange::client_gone() {
  detach();
  if (auto callback = std::exchange(on_closed_, nullptr)) callback();
}

void Connection::HttpExchange::silent() {
  if (on_silence_) on_silence_();
}

// Before the response an interim one; HTTP/1.0 does not know it.
void Connection::HttpExchange::probe() {
  if (begun_ || !chunked_) {
    silent();
  } else {
    write("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

Connection::HttpExchange::Header Connection::HttpExchange::make_header(
    int status, const std::string& content_type) const {
  Header header;
  header.version(chunked_ ? 11 : 10);
  header.result(static_cast<unsigned>(status));
  header.set(http::field::server, "replayssm/" REPLAYSSM_VERSION);
  if (status != 204) header.set(http::field::content_type, content_type);
  header.set("x-request-id", request_id_);
  if (!keep_alive_) {
    header.set(http::field::connection, "close");
  } else if (!chunked_) {
    header.set(http::field::connection, "keep-alive");
  }
  add_cors(header);
  return header;
}

void Connection::HttpExchange::add_cors(Header& header) const {
  const std::string& allowed = connection_->host_.api.context().options.allowed_origin;
  if (origin_.empty() || allowed.empty() || (allowed != "*" && allowed != origin_)) return;
  header.set(http::field::access_control_allow_origin, allowed);
  header.set(http::field::access_control_allow_methods, "GET, POST, OPTIONS");
  header.set(http::field::access_control_allow_headers,
             "Authorization, *");  // the asterisk does not mean the former
  header.set(http::field::access_control_expose_headers, "*");
  header.set(http::field::vary, "Origin");
}

void Connection::HttpExchange::finish(bool keep_alive) {
  const auto connection = connection_;
  if (!connection) return;
  detach();
  connection->end_exchange(keep_alive);
}

void Connection::HttpExchange::detach() {
  if (!connection_) return;
  --connection_->host_.exchanges;
  connection_.reset();
}

}  // namespace replayssm::server
