// InternLM/lmdeploy#4426: a core was busy while nothing ran.
#include "../server/real_server.h"
#include "processor_time.h"

namespace replayssm::server {
namespace {

TEST(J02, AnIdleServerUsesNoProcessorTime) {
  ASSERT_TRUE(eventually([] { return real_server().service->idle(); }));
  HttpClient waiting = real_server().client();  // an open connection costs nothing either
  ASSERT_EQ(waiting.get("/health").status, 200);
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LT(processor_seconds() - before, 0.01 * 2);
}

}  // namespace
}  // namespace replayssm::server
