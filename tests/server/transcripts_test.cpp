// The requests that benchmark clients and evaluation tools send, byte for byte with their answers:
// tests/data/server/transcripts/NAME.request.json and NAME.answer.txt. Ids, times and versions are
// masked. REPLAYSSM_WRITE_GOLDENS=1 writes the answers instead of comparing.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "api_harness.h"
#include "source_dir.h"

namespace replayssm::server {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string masked(std::string text) {
  const std::pair<const char*, const char*> masks[] = {
      {R"x((chatcmpl-|cmpl-|call_|gen-)[0-9a-f]+)x", "$1ID"},
      {R"x("created":[0-9]+)x", R"x("created":TIME)x"},
      {R"x("system_fingerprint":"[^"]*")x", R"x("system_fingerprint":"VERSION")x"},
      {R"x("([a-z_]+_ms|[a-z_]+_per_second)":[0-9.e+-]+)x", R"x("$1":TIME)x"}};
  for (const auto& [pattern, mask] : masks) {
    text = std::regex_replace(text, std::regex(pattern), mask);
  }
  return text;
}

TEST(Transcripts, KnownClientsGetTheirKnownAnswers) {
  const fs::path folder = source_dir() / "tests/data/server/transcripts";
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kEnding = ".request.json";
    if (!name.ends_with(kEnding)) continue;
    ++count;
    const std::string stem = name.substr(0, name.size() - kEnding.size());
    // {"path", "body"}; the model says the same to everybody.
    const Json request = parse_json(read(entry.path())).value();
    ApiHarness harness([](const GenerationRequest&, int) { return says("Hello there.", false); });
    const Received received = harness.post(request["path"].get<std::string>(), request["body"]);
    const std::string answer =
        masked(std::to_string(received.response.status) + "\n" +
               (received.streamed ? received.stream : received.response.body + "\n"));
    const fs::path golden = folder / (stem + ".answer.txt");
    if (std::getenv("REPLAYSSM_WRITE_GOLDENS") != nullptr) {
      std::ofstream(golden, std::ios::binary) << answer;
    }
    EXPECT_EQ(answer, read(golden)) << stem;
  }
  EXPECT_GE(count, 8);
}

}  // namespace
}  // namespace replayssm::server
