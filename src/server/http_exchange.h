// The exchange of one request on a connection. Only for connection.cpp and http_exchange.cpp.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/beast/http/message.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "server/connection.h"
#include "server/http.h"

namespace replayssm::server {

// Ends when its response is complete or the connection closes, whichever is first; whoever still
// holds it then talks to nobody.
class Connection::HttpExchange final : public Exchange,
                                       public std::enable_shared_from_this<HttpExchange> {
 public:
  // `version`: 10 or 11, the request's.
  HttpExchange(std::shared_ptr<Connection> connection, const HttpRequest& request, unsigned version,
               bool keep_alive);
  ~HttpExchange() override;

  void post(std::function<void()> work) override;
  void respond(HttpResponse response) override;
  void begin_stream() override;
  void send(std::string events) override;
  void end_stream(After after) override;
  void on_closed(std::function<void()> callback) override { on_closed_ = std::move(callback); }
  void on_silence(std::function<void()> callback) override { on_silence_ = std::move(callback); }
  bool closed() const override { return !connection_; }

  // The connection's side: the client has gone / nothing was sent for a while / something is to be
  // sent that the client skips.
  void client_gone();
  void silent();
  void probe();

 private:
  using Header = boost::beast::http::response_header<>;

  // Counts an exchange as there until everything else of it has been destroyed.
  class Counted {
   public:
    explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    std::atomic<int>& count_;
  };

  Header make_header(int status, const std::string& content_type) const;
  void add_cors(Header& header) const;
  void write(std::string bytes);
  void finish(bool keep_alive);
  void detach();

  Counted counted_;                         // first: destroyed last
  std::shared_ptr<Connection> connection_;  // empty once the exchange is over
  // The threads of the sockets go on as long as somebody may post.
  boost::asio::executor_work_guard<boost::asio::any_io_executor> work_;
  std::string request_id_;
  std::string origin_;
  bool head_;
  bool chunked_;
  bool keep_alive_;
  bool begun_ = false;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::function<void()> on_closed_;
  std::function<void()> on_silence_;
};

}  // namespace replayssm::server
