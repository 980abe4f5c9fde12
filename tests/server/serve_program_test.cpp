// `replayssm serve` as a person starts it: flags, signals, exit codes.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "http_client.h"
#include "program.h"

namespace replayssm::server {
namespace {

// The program in the background, its output in files.
class Server {
 public:
  explicit Server(std::vector<std::string> flags) {
    stem_ = std::filesystem::temp_directory_path() /
            ("replayssm_serve_" + std::to_string(::getpid()) + "_" + std::to_string(count_++));
    flags.insert(flags.begin(), {REPLAYSSM_PROGRAM, "serve", "--port", "0", "--threads", "2",
                                 "--max-running-requests", "4", "--context-length", "512"});
    child_ = ::fork();
    if (child_ == 0) {
      for (const auto& [name, to] : {std::pair{".out", STDOUT_FILENO}, {".err", STDERR_FILENO}}) {
        ::dup2(::open((stem_.string() + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), to);
      }
      std::vector<char*> argv;
      for (std::string& flag : flags) argv.push_back(flag.data());
      argv.push_back(nullptr);
      ::execv(REPLAYSSM_PROGRAM, argv.data());
      ::_exit(127);
    }
    for (int i = 0; i < 12000 && port_ == 0; ++i) {
      const std::string line = read(".out");
      const std::size_t at = line.rfind(':');
      if (line.ends_with("\n") && at != std::string::npos) {
        port_ = static_cast<std::uint16_t>(std::stoi(line.substr(at + 1)));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_NE(port_, 0) << read(".err");
  }
  ~Server() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    for (const char* name : {".out", ".err"}) std::filesystem::remove(stem_.string() + name);
  }

  std::uint16_t port() const { return port_; }
  void signal(int number) const { ::kill(child_, number); }
  // 128 + signal where a signal ended it.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string read(const char* name) const {
    std::ostringstream text;
    text << std::ifstream(stem_.string() + name).rdbuf();
    return text.str();
  }

 private:
  static inline int count_ = 0;
  std::filesystem::path stem_;
  pid_t child_ = -1;
  std::uint16_t port_ = 0;
};

constexpr const char* kLong =
    R"({"messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 450,)"
    R"( "ignore_eos": true, "stream": true})";

TEST(ServeProgram, SaysWhatItDoesAndEndsWithZero) {
  Server server({"--api-key", "sesame", "--disable-radix-cache"});
  HttpClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/v1/models").status, 401);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  const std::string log = server.read(".err");
  EXPECT_NE(log.find("weights"), std::string::npos) << log;
  EXPECT_NE(log.find("--disable-radix-cache"), std::string::npos) << log;
  EXPECT_EQ(log.find("sesame"), std::string::npos) << log;
}

TEST(ServeProgram, AnAddressOfIpv6IsPrintedAsUrlsHaveIt) {
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  const bool has_ipv6 =
      probe >= 0 && ::bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
  if (probe >= 0) ::close(probe);
  if (!has_ipv6) GTEST_SKIP() << "no address ::1 here";
  const Server server({"--host", "::1"});
  EXPECT_NE(server.read(".out").find(" is served at http://[::1]:"), std::string::npos);
}

TEST(ServeProgram, ARunningStreamIsFinishedAfterSigterm) {
  Server server({});
  HttpClient old(server.port());
  old.send(HttpClient::request("POST", "/v1/chat/completions", kLong));
  EXPECT_EQ(old.read_head().status, 200);
  std::string piece;
  ASSERT_TRUE(old.read_chunk(piece));
  server.signal(SIGTERM);
  HttpClient late(server.port());
  int status = 200;
  // The signal takes its way through the system; the stream goes on for much longer than that.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (status == 200 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    status = late.get("/health").status;
  }
  EXPECT_EQ(status, 503);
  std::string all = piece;
  while (old.read_chunk(piece) && !piece.empty()) all += piece;
  EXPECT_TRUE(all.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(server.wait(), 0);
}

TEST(ServeProgram, TheTimeAfterSigtermIsLimited) {
  Server server({"--shutdown-timeout", "0"});
  HttpClient client(server.port());
  client.send(HttpClient::request("POST", "/v1/chat/completions", kLong));
  EXPECT_EQ(client.read_head().status, 200);
  server.signal(SIGINT);
  EXPECT_EQ(server.wait(), 0);
}

TEST(ServeProgram, WrongFlagsAreNamedWithValueAndWhatIsAccepted) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--port", "70000"},
      {"--mem-fraction-static", "1.5"},
      {"--max-running-requests", "-1"},
      {"--max-queued-requests", "few"},
      {"--context-length", "0"},
      {"--chunked-prefill-size", "0"},
      {"--page-size", "0"},
      {"--mamba-ssm-dtype", "int8"},
      {"--mamba-track-interval", "100"},
      {"--linear-replayssm-cache-len", "9"},
      {"--schedule-policy", "lottery"},
      {"--chat-template", "/no/such/file"},
      {"--tool-call-parser", "xml"},
      {"--reasoning-parser", "other"},
      {"--random-seed", "x"},
      {"--log-level", "loud"},
      {"--hicache-size", "much"},
      {"--model-path", "/no/such/folder"},
      {"--dtype", "float8"},
      {"--cpu-isa", "mmx"},
      {"--threads", "0"},
      {"--host", "no.such.host.invalid"},
      {"--host", "192.0.2.1"},  // nobody's: for documentation
  };
  for (const auto& flag : wrong) {
    const ProgramResult result = run_program({"serve", "--port", "0", flag[0], flag[1]});
    EXPECT_EQ(result.exit_code, 2) << flag[0] << " " << result.err;
    EXPECT_NE(result.err.find(flag[0]), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(flag[1]), std::string::npos) << result.err;
  }
  const ProgramResult both =
      run_program({"serve", "--enable-linear-replayssm", "--disable-linear-replayssm"});
  EXPECT_EQ(both.exit_code, 2);
}

}  // namespace
}  // namespace replayssm::server
