// InternLM/lmdeploy#4426: a core was busy while nothing ran.
#include <sys/resource.h>

#include "../server/real_server.h"

namespace replayssm::server {
namespace {

TEST(J02, AnIdleServerUsesNoProcessorTime) {
  ASSERT_TRUE(RealServer::eventually([] { return real_server().service->idle(); }));
  HttpClient waiting = real_server().client();  // an open connection costs nothing either
  ASSERT_EQ(waiting.get("/health").status, 200);
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  const double before = used();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LT(used() - before, 0.01 * 2);
}

}  // namespace
}  // namespace replayssm::server
