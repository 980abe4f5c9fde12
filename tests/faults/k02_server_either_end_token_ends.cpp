// exo-explore/exo#1644: only one of two end tokens was honoured.
#include "../server/real_server.h"

namespace replayssm::server {
namespace {

// Both of the checkpoint's end tokens are forced in turn.
TEST(K02, EitherEndTokenEndsAndLeavesNoText) {
  for (const TokenId end : real_server().service->config().eos) {
    Json body = chat_body("Hi");
    body["max_tokens"] = 8;
    body["logit_bias"] = {{std::to_string(end), 100}};
    const Json choice = real_server().chat(body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["message"]["content"], "");
  }
}

}  // namespace
}  // namespace replayssm::server
