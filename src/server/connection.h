// One connection: requests one after another, each answered through an exchange. Only for
// http_server.cpp and connection.cpp: this is where Beast is.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http_server.h"

namespace replayssm::server {

class Connection;

// What all connections share; outlives them.
struct ConnectionHost {
  Api& api;
  HttpLimits limits;
  std::atomic<int> exchanges{0};  // responses that are not complete
  std::mutex mutex;
  std::map<Connection*, std::weak_ptr<Connection>> connections;
  std::atomic<int> exchange_objects{0};  // until their last member is destroyed, on any thread
};

// Everything runs on the connection's strand. While a request is answered the next one's header is
// read already: that is how a client that goes away is noticed. One that has only closed its
// sending side gets its response. The two look alike until something is sent: the system of a
// client that is gone answers that with a reset, so a few bytes that every client skips are sent.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // The socket's executor is a strand.
  Connection(Socket socket, ConnectionHost& host);
  ~Connection();

  void start();
  // From any thread: drops the connection.
  void stop();

 private:
  class HttpExchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using ErrorCode = boost::system::error_code;
  using Clock = std::chrono::steady_clock;
  enum class Reading { header, body, nothing };

  void read_header();
  void read_first_bytes();
  void on_header(ErrorCode error);
  void watch_input();
  void on_readable();
  void read_body();
  void on_body(ErrorCode error);
  void refuse_unread(ErrorCode error);
  void begin_exchange();
  void end_exchange(bool keep_alive);
  void on_end_of_input();
  void watch_reset();

  void write(std::string bytes);
  void write_next();
  void write_some();
  void on_written(ErrorCode error, std::size_t bytes);
  void set_deadline(boost::asio::steady_timer& timer, std::chrono::milliseconds after,
                    void (Connection::*expired)());
  void on_read_timeout();
  void on_write_timeout();
  void watch_silence();
  void linger();
  void drop_input();
  void close();

  Socket socket_;
  ConnectionHost& host_;
  boost::asio::steady_timer read_timer_;
  boost::asio::steady_timer write_timer_;
  boost::asio::steady_timer silence_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Reading reading_ = Reading::nothing;
  // The next request's header was read while this one was being answered, well or badly.
  std::optional<ErrorCode> waiting_header_;

  std::shared_ptr<HttpExchange> exchange_;  // while a request is being answered
  std::string queued_;                      // to be written next
  std::string in_flight_;                   // being written
  std::size_t taken_ = 0;                   // bytes of in_flight_ that the system has
  Clock::time_point last_taken_;            // when it took some
  bool close_when_written_ = false;
  bool input_ended_ = false;
  bool watching_input_ = false;
  std::string dropped_;
  bool closed_ = false;
  bool written_since_check_ = false;
};

}  // namespace replayssm::server
