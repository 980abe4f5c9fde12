// A plain blocking HTTP client: says exactly what a test wants it to say.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace replayssm::server {

struct ClientResponse {
  int status = 0;                              // 0: the connection ended without one
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without the framing of chunks
  bool complete = false;
};

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port, int receive_buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    timeval limit{60, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  HttpClient(HttpClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        connected_(other.connected_),
        received_(std::move(other.received_)) {}

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  // Without the orderly end that close() sends.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  // Nothing more will be sent, but a response is still wanted.
  void end_sending() { ::shutdown(socket_, SHUT_WR); }

  // False when the other side no longer takes anything.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // Received and not read by any of the functions below.
  std::size_t received_bytes() const { return received_.size(); }

  static std::string request(std::string_view method, std::string_view path, std::string_view body,
                             std::string_view headers = "") {
    std::string text = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" +
                       std::string(headers);
    if (!body.empty() || method == "POST") {
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n";
    }
    return text + "\r\n" + std::string(body);
  }

  ClientResponse get(std::string_view path) {
    send(request("GET", path, ""));
    return read_response();
  }
  ClientResponse post(std::string_view path, std::string_view body) {
    send(request("POST", path, body));
    return read_response();
  }

  ClientResponse read_response(bool head = false) {
    ClientResponse response = read_head();
    while (response.status == 100) response = read_head();
    if (response.status == 0 || head || response.status == 204) {
      response.complete = response.status != 0;
      return response;
    }
    const auto encoding = response.headers.find("transfer-encoding");
    if (encoding != response.headers.end() && encoding->second == "chunked") {
      std::string piece;
      while (read_chunk(piece)) {
        if (piece.empty()) {
          response.complete = true;
          break;
        }
        response.body += piece;
      }
    } else if (response.headers.contains("content-length")) {
      const auto length = static_cast<std::size_t>(std::stoul(response.headers["content-length"]));
      while (received_.size() < length && receive()) {
      }
      response.body = received_.substr(0, length);
      response.complete = response.body.size() == length;
      received_.erase(0, length);
    } else {
      while (receive()) {
      }
      response.body = std::exchange(received_, {});
      response.complete = true;
    }
    return response;
  }

  ClientResponse read_head() {
    ClientResponse response;
    std::size_t end = 0;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) return response;
    }
    const std::string head = received_.substr(0, end + 2);
    received_.erase(0, end + 4);
    response.status = std::stoi(head.substr(9, 3));
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t line_end = head.find("\r\n", at);
      const std::string line = head.substr(at, line_end - at);
      const std::size_t colon = line.find(": ");
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      if (colon != std::string::npos) response.headers[name] = line.substr(colon + 2);
      at = line_end + 2;
    }
    return response;
  }

  // False when the connection ended; an empty piece is the last chunk.
  bool read_chunk(std::string& piece) {
    std::size_t line = 0;
    while ((line = received_.find("\r\n")) == std::string::npos) {
      if (!receive()) return false;
    }
    const auto length =
        static_cast<std::size_t>(std::stoul(received_.substr(0, line), nullptr, 16));
    while (received_.size() < line + 2 + length + 2) {
      if (!receive()) return false;
    }
    piece = received_.substr(line + 2, length);
    received_.erase(0, line + 2 + length + 2);
    return true;
  }

  // Whether the other side has closed the connection, waiting for it.
  bool ended() {
    while (receive()) {
    }
    return true;
  }

  bool receive() {
    char bytes[16384];
    const auto got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    received_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }

 private:
  int socket_ = -1;
  bool connected_ = false;
  std::string received_;
};

// Whether `condition` comes true within 20 s.
template <class Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace replayssm::server
