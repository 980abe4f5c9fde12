#include "server/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

#include "server/http_exchange.h"
#include "server/log.h"

namespace replayssm::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

// After a response that ends the connection: how long, and for how much, to listen to a client that
// is still sending, so that it gets to read the response.
constexpr std::chrono::milliseconds kLinger{2'000};
constexpr std::size_t kRequestIdLength = 128;
// What is read at once, of input that nobody has asked for yet.
constexpr std::size_t kReadBytes = 4096;

// A request id goes into headers and log lines.
bool is_plain(std::string_view text) {
  return !text.empty() && text.size() <= kRequestIdLength &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

// What arrived is no HTTP; otherwise the connection has ended.
bool is_malformed(const boost::system::error_code& error) {
  return error.category() == make_error_code(http::error::bad_target).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

// Empty lines before a request are skipped (RFC 9112, 2.2).
void skip_empty_lines(beast::flat_buffer& buffer) {
  const auto bytes = buffer.data();
  const auto* begin = static_cast<const char*>(bytes.data());
  const auto* end = begin + bytes.size();
  buffer.consume(static_cast<std::size_t>(
      std::find_if(begin, end, [](char c) { return c != '\r' && c != '\n'; }) - begin));
}

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

HttpRequest request_of(http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = std::string(view(message.method_string()));
  std::string_view target = view(message.target());
  // The absolute form (RFC 9112, 3.2.2).
  if (const std::size_t host = target.find("://"); host != std::string_view::npos) {
    target = target.substr(std::min(target.find('/', host + 3), target.size()));
  }
  const std::size_t query = target.find('?');
  request.path = std::string(target.substr(0, query));
  if (query != std::string_view::npos) request.query = std::string(target.substr(query + 1));
  request.body = std::move(message.body());
  request.authorization = std::string(view(message[http::field::authorization]));
  request.origin = std::string(view(message[http::field::origin]));
  request.request_id = std::string(view(message["x-request-id"]));
  if (!is_plain(request.request_id)) request.request_id = random_id("req-");
  return request;
}

}  // namespace

Connection::Connection(Socket socket, ConnectionHost& host)
    : socket_(std::move(socket)),
      host_(host),
      read_timer_(socket_.get_executor()),
      write_timer_(socket_.get_executor()),
      silence_timer_(socket_.get_executor()) {}

Connection::~Connection() {
  const std::lock_guard lock(host_.mutex);
  host_.connections.erase(this);
}

void Connection::start() {
  {
    const std::lock_guard lock(host_.mutex);
    host_.connections.emplace(this, weak_from_this());
  }
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] { self->read_header(); });
}

void Connection::stop() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
}

void Connection::set_deadline(asio::steady_timer& timer, std::chrono::milliseconds after,
                              void (Connection::*expired)()) {
  timer.expires_after(after);
  timer.async_wait([weak = weak_from_this(), expired](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self && !self->closed_) (self.get()->*expired)();
  });
}

void Connection::read_header() {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(host_.limits.header_bytes));
  parser_->body_limit(host_.limits.body_bytes);
  reading_ = Reading::header;
  if (!exchange_) set_deadline(read_timer_, host_.limits.idle, &Connection::on_read_timeout);
  read_first_bytes();
}

void Connection::read_first_bytes() {
  skip_empty_lines(buffer_);
  if (buffer_.size() > 0) {
    return http::async_read_header(
        socket_, buffer_, *parser_,
        [self = shared_from_this()](ErrorCode error, std::size_t) { self->on_header(error); });
  }
  socket_.async_read_some(
      buffer_.prepare(kReadBytes), [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
        if (self->closed_ || self->close_when_written_) return;
        self->buffer_.commit(bytes);
        if (!error) return self->read_first_bytes();
        self->on_header(error == asio::error::eof ? ErrorCode(http::error::end_of_stream) : error);
      });
}

void Connection::on_header(ErrorCode error) {
  if (closed_ || close_when_written_) return;
  read_timer_.cancel();
  reading_ = Reading::nothing;
  if (error == http::error::end_of_stream || error == http::error::partial_message) {
    return on_end_of_input();
  }
  const bool gone = error && !is_malformed(error);
  if (exchange_ && !gone) {
    waiting_header_ = error;  // its turn comes in end_exchange()
    watch_input();
  } else if (error) {
    refuse_unread(error);
  } else {
    read_body();
  }
}

// While a request waits behind the one that is being answered: takes what comes after its header,
// so that its end is seen. A client that sends very much ahead is not gone.
void Connection::watch_input() {
  if (watching_input_ || buffer_.size() >= host_.limits.header_bytes) return;
  watching_input_ = true;
  socket_.async_wait(Socket::wait_read, [weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!self) return;
    self->watching_input_ = false;
    if (!error && self->exchange_ && self->waiting_header_) self->on_readable();
  });
}

void Connection::on_readable() {
  socket_.non_blocking(true);
  ErrorCode error;
  buffer_.commit(socket_.read_some(buffer_.prepare(kReadBytes), error));
  if (error == asio::error::eof) return on_end_of_input();
  if (error && error != asio::error::would_block) return close();
  watch_input();
}

void Connection::read_body() {
  if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  reading_ = Reading::body;
  set_deadline(read_timer_, host_.limits.body, &Connection::on_read_timeout);
  http::async_read(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->on_body(error); });
}

void Connection::on_body(ErrorCode error) {
  if (closed_ || close_when_written_) return;
  read_timer_.cancel();
  reading_ = Reading::nothing;
  if (error) return refuse_unread(error);
  begin_exchange();
}

// Nothing more will come. What is being answered or written still goes out.
void Connection::on_end_of_input() {
  input_ended_ = true;
  if (exchange_) {
    watch_reset();
    const auto exchange = exchange_;
    exchange->probe();
  } else if (!in_flight_.empty()) {
    close_when_written_ = true;
  } else {
    close();
  }
}

void Connection::watch_reset() {
  socket_.async_wait(Socket::wait_error, [weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self) self->close();
  });
}

// A request that could not be read. Where the fault is the client's it is told, then the connection
// ends: what follows cannot be told apart from the rest of the request.
void Connection::refuse_unread(ErrorCode error) {
  ApiError refusal;
  if (error == http::error::body_limit) {
    refusal.status = 413;
    refusal.message = fmt::format("the body: expected at most {} bytes", host_.limits.body_bytes);
    refusal.code = "body_too_large";
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    refusal.status = 431;
    refusal.message =
        fmt::format("the header: expected at most {} bytes", host_.limits.header_bytes);
    refusal.code = "header_too_large";
  } else if (error == asio::error::timed_out) {
    refusal.status = 408;
    refusal.message = "the request was not complete in time";
    refusal.code = "request_timeout";
  } else if (is_malformed(error)) {
    refusal.message = "this is no HTTP request: " + error.message();
    refusal.code = "bad_request";
  } else {
    return close();  // the client has gone, or is done
  }
  HttpRequest request;
  request.request_id = random_id("req-");
  log(LogLevel::info, "{} {}: {}", request.request_id, refusal.status, refusal.message);
  exchange_ = std::make_shared<HttpExchange>(shared_from_this(), request, 11, false);
  const auto exchange = exchange_;
  exchange->respond(error_response(refusal));
}

void Connection::begin_exchange() {
  auto message = parser_->release();
  const unsigned version = message.version();
  const bool keep_alive = message.keep_alive();
  HttpRequest request = request_of(message);
  exchange_ = std::make_shared<HttpExchange>(shared_from_this(), request, version, keep_alive);
  const auto exchange = exchange_;
  read_header();  // of the next request; notices that the client goes away
  watch_silence();
  host_.api.handle(std::move(request), exchange);
}

void Connection::end_exchange(bool keep_alive) {
  exchange_.reset();
  silence_timer_.cancel();
  if (closed_) return;
  if (keep_alive) {
    if (const auto waiting = std::exchange(waiting_header_, std::nullopt)) {
      return *waiting ? refuse_unread(*waiting) : read_body();
    }
  }
  if (!keep_alive || input_ended_) {
    close_when_written_ = true;
    if (in_flight_.empty() && queued_.empty()) linger();
    return;
  }
  if (reading_ == Reading::header) {
    set_deadline(read_timer_, host_.limits.idle, &Connection::on_read_timeout);
  }
}

void Connection::write(std::string bytes) {
  if (closed_) return;
  written_since_check_ = true;
  queued_ += bytes;
  // A long response is no slow reader: what counts is that it takes nothing.
  if (queued_.size() > host_.limits.outgoing_bytes && !in_flight_.empty() &&
      Clock::now() - last_taken_ > host_.limits.stall) {
    log(LogLevel::warning, "a client reads too slowly: {} bytes wait for it, dropped",
        queued_.size());
    return close();
  }
  if (in_flight_.empty()) write_next();
}

void Connection::write_next() {
  in_flight_ = std::exchange(queued_, {});
  taken_ = 0;
  last_taken_ = Clock::now();
  write_some();
}

void Connection::write_some() {
  set_deadline(write_timer_, host_.limits.write, &Connection::on_write_timeout);
  socket_.async_write_some(asio::buffer(in_flight_) + taken_,
                           [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                             self->on_written(error, bytes);
                           });
}

void Connection::on_written(ErrorCode error, std::size_t bytes) {
  if (closed_) return;
  write_timer_.cancel();
  if (!error) {
    taken_ += bytes;
    last_taken_ = Clock::now();
    if (taken_ < in_flight_.size()) return write_some();
  }
  in_flight_.clear();
  if (error) return close();
  if (!queued_.empty()) return write_next();
  if (close_when_written_) linger();
}

void Connection::on_read_timeout() {
  const bool begun = reading_ == Reading::body || buffer_.size() > 0;
  if (!begun) return close();
  socket_.cancel();  // the read ends, and its handler is not to answer
  reading_ = Reading::nothing;
  refuse_unread(asio::error::timed_out);
}

void Connection::on_write_timeout() {
  log(LogLevel::warning, "a client has taken nothing for {} ms, dropped",
      host_.limits.write.count());
  close();
}

void Connection::watch_silence() {
  written_since_check_ = false;
  silence_timer_.expires_after(host_.limits.silence);
  silence_timer_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (error || !self || !self->exchange_) return;
    const auto exchange = self->exchange_;
    if (self->input_ended_) {
      exchange->probe();
    } else if (!self->written_since_check_) {
      exchange->silent();
    }
    if (self->exchange_) self->watch_silence();
  });
}

// Closing while the client still sends would make its system drop the response unread.
void Connection::linger() {
  if (closed_) return;
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  socket_.cancel(ignored);
  set_deadline(read_timer_, kLinger, &Connection::close);
  dropped_.resize(16 << 10);
  drop_input();
}

void Connection::drop_input() {
  socket_.async_read_some(asio::buffer(dropped_),
                          [self = shared_from_this()](ErrorCode error, std::size_t) {
                            if (self->closed_) return;
                            if (error && error != asio::error::operation_aborted) {
                              return self->close();
                            }
                            self->drop_input();
                          });
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  ErrorCode ignored;
  read_timer_.cancel();
  write_timer_.cancel();
  silence_timer_.cancel();
  socket_.close(ignored);
  queued_.clear();
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->client_gone();
}

}  // namespace replayssm::server
