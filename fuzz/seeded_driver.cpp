// Runs a fuzz target without a fuzzer: inputs from fixed seeds, so that every test run covers the
// same ones. With file arguments it runs those instead, to replay a finding.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

// Fragments that the targets' languages are made of, so that random inputs get past the first byte.
const std::vector<std::string_view> kFragments = {"<tool_call>",
                                                  "</tool_call>",
                                                  "<function=f>",
                                                  "</function>",
                                                  "<parameter=p>",
                                                  "</parameter>",
                                                  "<think>",
                                                  "</think>",
                                                  "\n",
                                                  " ",
                                                  "{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  ":",
                                                  ",",
                                                  "\"",
                                                  "\\",
                                                  "\"type\":",
                                                  "\"object\"",
                                                  "\"properties\":",
                                                  "\"items\":",
                                                  "\"pattern\":",
                                                  "\"$ref\":",
                                                  "\"#\"",
                                                  "\"anyOf\":",
                                                  "\"allOf\":",
                                                  "\"enum\":",
                                                  "\"minimum\":",
                                                  "\"maxLength\":",
                                                  "\"name\":",
                                                  "\"arguments\":",
                                                  "true",
                                                  "null",
                                                  "12",
                                                  "-0.5e3",
                                                  "(a|b)*",
                                                  "[^x]{2,3}",
                                                  "\xC3\xA9",
                                                  "\xF0\x9F",
                                                  "END",
                                                  "\"required\":"};

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    run({std::istreambuf_iterator<char>(file), {}});
  }
  if (argc > 1) return 0;
  constexpr int kInputs = 4000;
  std::mt19937 random(2024);
  for (int n = 0; n < kInputs; ++n) {
    std::string input;
    for (std::size_t parts = random() % 24; parts > 0; --parts) {
      if (random() % 8 == 0) {
        input += static_cast<char>(random() % 256);
      } else {
        input += kFragments[random() % kFragments.size()];
      }
    }
    run(input);
  }
  std::printf("%d inputs\n", kInputs);
  return 0;
}
