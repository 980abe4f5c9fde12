#include "server/http_server.h"

#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "server/connection.h"
#include "server/log.h"

namespace replayssm::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

// After the system had no descriptor or memory for a connection.
constexpr std::chrono::milliseconds kAcceptAgain{100};
constexpr std::chrono::milliseconds kWaitForExchanges{1};

// Until there is no more work. Memory that runs out for one connection is not the end of the
// others.
void run(asio::io_context& io) {
  while (true) {
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      log(LogLevel::error, "a connection's work failed: {}", error.what());
    }
  }
}

}  // namespace

// Destroyed from the last to the first; the threads have ended by then.
struct HttpServer::Parts {
  Parts(const HttpServerOptions& server_options, GenerationEngine& engine, const Frontend& frontend,
        ServedModel model, ApiOptions api_options)
      : options(server_options),
        text_pool(static_cast<std::size_t>(options.text_threads)),
        api(engine, frontend, std::move(model), std::move(api_options),
            [this](std::function<void()> task) { asio::post(text_pool, std::move(task)); }),
        host{api, options.limits, {}, {}, {}, {}},
        work(asio::make_work_guard(io)),
        acceptor(asio::make_strand(io)),
        accept_timer(acceptor.get_executor()) {}

  Status listen();
  void accept();
  void on_accept(ErrorCode error, tcp::socket socket);

  HttpServerOptions options;
  asio::thread_pool text_pool;
  Api api;
  ConnectionHost host;
  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  tcp::acceptor acceptor;
  asio::steady_timer accept_timer;
  std::vector<std::thread> threads;
};

Status HttpServer::Parts::listen() {
  ErrorCode error;
  const auto found = tcp::resolver(io).resolve(options.host, std::to_string(options.port),
                                               tcp::resolver::passive, error);
  if (error || found.empty()) {
    return refuse("--host", options.host, "an address or a name of this machine");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == boost::system::errc::address_not_available) {
    return refuse("--host", options.host, "an address or a name of this machine");
  }
  if (error) {
    return Error{fmt::format("--port: {} on {} cannot be used: {}", options.port, options.host,
                             error.message())};
  }
  return {};
}

void HttpServer::Parts::accept() {
  acceptor.async_accept(asio::make_strand(io), [this](ErrorCode error, tcp::socket socket) {
    on_accept(error, std::move(socket));
  });
}

void HttpServer::Parts::on_accept(ErrorCode error, tcp::socket socket) {
  if (!acceptor.is_open()) return;
  if (error) {
    log(LogLevel::warning, "a connection could not be accepted: {}", error.message());
    accept_timer.expires_after(kAcceptAgain);
    accept_timer.async_wait([this](ErrorCode stopped) {
      if (!stopped) accept();
    });
    return;
  }
  std::size_t open = 0;
  {
    const std::lock_guard lock(host.mutex);
    open = host.connections.size();
  }
  if (open < static_cast<std::size_t>(options.limits.connections)) {
    ErrorCode ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    std::make_shared<Connection>(std::move(socket), host)->start();
  } else {
    log(LogLevel::warning, "{} connections are open, one more was dropped", open);
  }
  accept();
}

HttpServer::HttpServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options,
                                                      GenerationEngine& engine,
                                                      const Frontend& frontend, ServedModel model,
                                                      ApiOptions api) {
  auto parts = std::make_unique<Parts>(options, engine, frontend, std::move(model), std::move(api));
  REPLAYSSM_TRY(parts->listen());
  parts->accept();
  for (int i = 0; i < options.io_threads; ++i) {
    parts->threads.emplace_back([&io = parts->io] { run(io); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(parts)));
}

// Clients are dropped, which cancels their generations; the threads end when nobody can post to a
// connection any more.
HttpServer::~HttpServer() {
  Parts& parts = *parts_;
  asio::post(parts.acceptor.get_executor(), [&parts] {
    ErrorCode ignored;
    parts.acceptor.close(ignored);
    parts.accept_timer.cancel();
    // A connection that ends takes the lock, so none may end under it.
    std::vector<std::shared_ptr<Connection>> open;
    {
      const std::lock_guard lock(parts.host.mutex);
      for (const auto& [key, weak] : parts.host.connections) open.push_back(weak.lock());
    }
    for (const auto& connection : open) {
      if (connection) connection->stop();
    }
  });
  parts.text_pool.join();
  parts.work.reset();
  for (std::thread& thread : parts.threads) thread.join();
  // The engine's thread may be in the middle of destroying an exchange, which holds a strand of
  // `io`.
  while (parts.host.exchange_objects > 0) std::this_thread::sleep_for(kWaitForExchanges);
}

std::uint16_t HttpServer::port() const { return parts_->acceptor.local_endpoint().port(); }

void HttpServer::drain() { parts_->api.drain(); }

int HttpServer::open_exchanges() const { return parts_->host.exchanges; }

int HttpServer::connections() const {
  const std::lock_guard lock(parts_->host.mutex);
  return static_cast<int>(parts_->host.connections.size());
}

}  // namespace replayssm::server
