// Help, versions and refusals of the command line.
#include <algorithm>
#include <map>

#include "program.h"
#include "source_dir.h"

namespace replayssm {
namespace {

int lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(CliFlags, TheVersionIsOneLine) {
  const auto result = run_program({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.rfind("replayssm ", 0), 0u);
  EXPECT_EQ(lines(result.out), 1);
}

TEST(CliFlags, HelpOfEveryCommandNamesItsFlagsAndWhatTheyAccept) {
  const std::vector<std::string> engine{"--model-path",
                                        "--linear-replayssm-cache-len",
                                        "{8,16,32}",
                                        "--mamba-ssm-dtype",
                                        "{float32,bfloat16}",
                                        "--dtype",
                                        "{auto,float32,bfloat16}",
                                        "--deterministic",
                                        "--threads",
                                        "--cpu-isa",
                                        "scalar} on this machine"};
  const std::vector<std::string> sampling{"--temperature",
                                          "--top-k",
                                          "--top-p",
                                          "--min-p",
                                          "--seed",
                                          "--repetition-penalty",
                                          "--presence-penalty",
                                          "--frequency-penalty",
                                          "generation_config.json"};
  const auto joined = [](std::vector<std::string> a, const std::vector<std::string>& b,
                         const std::vector<std::string>& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
  };
  const std::map<std::string, std::vector<std::string>> expected{
      {"generate", joined(engine, sampling,
                          {"--prompt", "--chat", "--max-tokens", "--json",
                           "--disable-linear-replayssm", "Example"})},
      {"chat", joined(engine, sampling, {"--max-tokens", "/reset"})},
      {"eval", joined(engine, {}, {"--limit", "--replay", "{on,off,both}", "--json"})},
      {"plan", joined(engine, {},
                      {"--memory", "--max-running-requests", "--speculative-num-draft-tokens",
                       "--json", "Example"})},
      {"selftest", joined(engine, {}, {"Exit code 0"})}};
  const auto top = run_program({"--help"});
  EXPECT_EQ(top.exit_code, 0);
  for (const auto& [command, texts] : expected) {
    EXPECT_NE(top.out.find(command), std::string::npos);
    const auto result = run_program({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    for (const std::string& text : texts) {
      EXPECT_NE(result.out.find(text), std::string::npos) << command << " " << text;
    }
  }
}

TEST(CliFlags, WhatIsWrongIsSaidInOneLineOnStandardErrorWithCodeTwo) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "a command is missing; expected generate chat"},
      {{"generat"}, "generat is not a command; expected generate chat eval plan"},
      {{"generate"}, "--prompt is required"},
      {{"generate", "--prompt", "a", "--bogus"}, "--bogus"},
      {{"generate", "--prompt", "a", "--linear-replayssm-cache-len", "12"}, "12 not in {8,16,32}"},
      {{"generate", "--prompt", "a", "--linear-replayssm-cache-len", "x"},
       "--linear-replayssm-cache-len: x is not accepted; expected a whole number, {8,16,32}"},
      {{"generate", "--prompt", "a", "--temperature", "warm"},
       "--temperature: warm is not accepted; expected a number"},
      {{"generate", "--prompt", "a", "--seed", "-1"}, "--seed: -1 is not accepted"},
      {{"generate", "--prompt", "a", "--seed", "99999999999999999999999"}, "from 0 to 1844674407"},
      {{"generate", "--prompt", "a", "--seed", ""}, "--seed: an empty value is not accepted"},
      {{"serve", "--random-seed=-5"}, "--random-seed: -5 is not accepted; expected a whole number"},
      {{"bench", "serve", "--seed", "18446744073709551616"}, "from 0 to 18446744073709551615"},
      {{"generate", "--prompt", "a", "--seed", "010"}, "--seed: 010 is not accepted"},
      {{"generate", "--prompt", "a", "--max-tokens", "08"}, "without leading zeros"},
      {{"generate", "--prompt", "a", "--max-tokens=0x10"}, "--max-tokens: 0x10 is not accepted"},
      {{"serve", "--mem-fraction-static", "nan"}, "nan is not accepted; expected a finite number"},
      {{"bench", "serve", "--timeout", "inf"}, "--timeout: inf is not accepted"},
      {{"bench", "serve", "--temperature", "nan"}, "--temperature: nan is not accepted"},
      {{"bench", "engine", "--top-p", "NaN"}, "--top-p: NaN is not accepted"},
      {{"bench", "engine", "--simulated-accepted-length", "nan"}, "expected a finite number"},
      {{"generate", "--prompt", "a", "--top-k="}, "--top-k: an empty value is not accepted"},
      {{"generate", "--prompt", "a", "--max-tokens", "0"}, "0 not in range 1 to"},
      {{"chat", "--context-length", "99999999"}, "at most the model's 4096"},
      {{"bench", "fold", "--layers", "48"}, "--layers: 48 is not accepted; expected 1 with"},
      {{"bench", "decode", "--launch", "plain"}, "--launch: plain is not accepted"},
      {{"bench", "decode", "--device", "cuda", "--threads", "2"}, "0 with --device cuda"},
      {{"bench", "verify", "--window", "16", "--fold-block", "8"},
       "--window: 16 is not accepted; expected at most the --fold-block of 8"},
      {{"bench", "fold", "--history", "0"}, "--history: 0 is not accepted; expected at least 1"},
      {{"bench", "fold", "--threads", "5000"}, "--threads: Value 5000 not in range 0 to 1024"},
      {{"bench", "engine", "--context", "5000"},
       "--context: 5000 is not accepted; expected at most 4031: the model has 4096 positions"},
      {{"bench"}, "a command is missing; expected decode verify"},
      {{"bench", "nope"}, "nope is not a command; expected decode verify fold prefill conv"},
      {{"generate", "--prompt", "a", "--dtype", "fp16"}, "fp16 not in {auto,float32,bfloat16}"},
      {{"generate", "--prompt", "a", "--mamba-ssm-dtype", "float16"}, "not in {float32,bfloat16}"},
      {{"generate", "--prompt", "a", "--temperature", "-1"}, "--temperature: -1"},
      {{"generate", "--prompt", "a", "--top-p", "1.5"}, "more than 0, at most 1"},
      {{"generate", "--prompt", "a", "--top-k", "-2"}, "--top-k: -2"},
      {{"generate", "--prompt", "a", "--min-p", "2"}, "--min-p: 2"},
      {{"generate", "--prompt", "a", "--repetition-penalty", "0"}, "--repetition-penalty: 0"},
      {{"generate", "--prompt", "a", "--threads", "0"}, "--threads"},
      {{"generate", "--prompt", "a", "--cpu-isa", "mmx"}, "--cpu-isa: mmx"},
      {{"plan", "--memory", "1GiB", "--cpu-isa", "mmx"}, "scalar"},
      {{"bench", "decode", "--cpu-isa", "mmx"}, "expected auto, "},
      {{"generate", "--prompt", "a", "--device", "cuda", "--cpu-isa", "scalar"},
       "--cpu-isa: scalar is not accepted; expected auto with --device cuda"},
      {{"bench", "decode", "--device", "cuda", "--cpu-isa", "scalar"},
       "--cpu-isa: scalar is not accepted; expected auto with --device cuda"},
      {{"bench", "decode", "--gate", "gla"}, "gla not in {gdn,kda}"},
      {{"generate", "--prompt", "a", "--max-tokens", "0"}, "--max-tokens"},
      {{"generate", "--prompt", ""}, "--prompt"},
      {{"generate", "--prompt", "a", "--max-tokens", "100000"}, "what the model's context"},
      {{"generate", "--prompt", "a", "--model-path", "/no/such/place"}, "/no/such/place"},
      {{"eval", "--replay", "maybe"}, "maybe not in {on,off,both}"},
      {{"plan", "--memory", "12parsecs"}, "such as 24GiB"},
      {{"plan"}, "--memory is required"},
      {{"generate", "--prompt", "a", "--speculative-algorithm", "DSPARK",
        "--speculative-draft-model-path", "/"},
       "--speculative-draft-model-path /: /config.json: no such file"},
      {{"eval", "--speculative-algorithm", "EAGLE3"},
       "NEXTN or MTP for the model's own draft head"},
      {{"generate", "--prompt", "a", "--disable-cuda-graph"},
       "--disable-cuda-graph: needs --device cuda"},
      {{"generate", "--prompt", "a", "--disable-overlap-schedule"},
       "--disable-overlap-schedule: needs --device cuda"},
      {{"serve", "--speculative-num-draft-tokens", "4"},
       "--speculative-num-draft-tokens: needs --speculative-algorithm"},
      {{"generate", "--prompt", "a", "--speculative-algorithm", "EAGLE",
        "--speculative-num-draft-tokens", "4", "--speculative-num-steps", "4"},
       "--speculative-num-draft-tokens: 4 is not accepted; expected 5"},
      {{"chat", "--speculative-algorithm", "NGRAM", "--disable-linear-replayssm"},
       "none with --disable-linear-replayssm"},
      {{"generate", "--prompt", "a", "--speculative-ragged-verify", "loose"},
       "loose not in {static,cap-accept,compact}"},
      {{"plan", "--memory", "1GiB", "--chunked-prefill-size", "8", "--speculative-algorithm",
        "NGRAM"},
       "--chunked-prefill-size: 8 is not accepted; expected at least 12"},
      {{"generate", "--prompt", "a", "--speculative-ragged-verify", "static"},
       "--speculative-ragged-verify: needs --speculative-algorithm"},
      {{"plan", "--memory", "1GiB", "--speculative-num-draft-tokens", "4",
        "--disable-linear-replayssm"},
       "none with --disable-linear-replayssm"}};
  for (const auto& [arguments, expected] : cases) {
    const auto result = run_program(arguments);
    const std::string what = arguments.empty() ? "nothing" : arguments.back();
    EXPECT_EQ(result.exit_code, 2) << what;
    EXPECT_EQ(result.out, "") << what;
    EXPECT_EQ(lines(result.err), 1) << result.err;
    EXPECT_EQ(result.err.rfind("replayssm: ", 0), 0u) << result.err;
    EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
  }
}

TEST(CliFlags, ADirectoryThatIsNoCheckpointIsRefusedByFile) {
  const std::string directory = source_dir().string() + "/docs";
  for (const char* command : {"generate", "plan"}) {
    const auto result =
        run_program({command, std::string(command) == "plan" ? "--memory" : "--prompt", "1GiB",
                     "--model-path", directory});
    EXPECT_EQ(result.exit_code, 1) << command;
    EXPECT_NE(result.err.find("docs/config.json"), std::string::npos) << result.err;
    EXPECT_EQ(lines(result.err), 1) << result.err;
  }
}

// It computes on the host, where weights that a GPU makes at random are not.
TEST(CliFlags, ABlockDrafterBesideAModelOnAGpuNeedsACheckpoint) {
  const auto result = run_program({"generate", "--prompt", "a", "--device", "cuda", "--load-format",
                                   "dummy", "--speculative-algorithm", "DFLASH"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("none, NGRAM or EAGLE with --device cuda and --load-format dummy"),
            std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace replayssm
