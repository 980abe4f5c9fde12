// ggml-org/llama.cpp#24496, #13262, #11720: generation went on without a client.
#include "../server/real_server.h"

namespace replayssm::server {
namespace {

TEST(Q01, AClientThatLeavesFreesItsSlotAndRow) {
  for (const bool stream : {false, true}) {
    HttpClient client = real_server().client();
    Json body = chat_body("Tell me a story", stream);
    body.update({{"max_tokens", 900}, {"ignore_eos", true}});
    client.send(HttpClient::request("POST", "/v1/chat/completions", to_text(body)));
    ASSERT_TRUE(eventually([] { return real_server().service->state().running == 1; }));
    client.close();
    EXPECT_TRUE(eventually([] { return real_server().service->idle(); }));
  }
}

}  // namespace
}  // namespace replayssm::server
