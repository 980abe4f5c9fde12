#include "sampling_flags.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <random>
#include <string>

namespace replayssm::cli {
namespace {

// "top_k: ..." to "--top-k: ...".
Error as_flag(const Error& error) {
  std::string message = error.message;
  const std::size_t end = std::min(message.find(':'), message.size());
  std::replace(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return Error{"--" + message};
}

// All of the text, so that no sign or overflow becomes another seed.
std::string is_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc{} && end == text.data() + text.size()) return {};
  return text + " is not accepted; expected a whole number from 0 to 18446744073709551615";
}

// 53 bits, so that the number survives JSON readers that know doubles only.
std::uint64_t random_seed() {
  std::random_device device;
  return ((std::uint64_t{device()} << 32) | device()) >> 11;
}

}  // namespace

void SamplingFlags::add_to(CLI::App& command) {
  const std::string defaults = ". Default: the checkpoint's generation_config.json, else ";
  command.add_option("--temperature", request.temperature,
                     "Divides the logits; 0 takes the most likely token" + defaults + "1");
  command.add_option("--top-k", request.top_k,
                     "Only the K most likely tokens; 0 is off" + defaults + "0");
  command.add_option(
      "--top-p", request.top_p,
      "Only the most likely tokens that reach this probability together" + defaults + "1");
  command.add_option(
      "--min-p", request.min_p,
      "Only tokens at least so many times as likely as the most likely" + defaults + "0");
  command.add_option("--seed", request.seed, "Seed of the random numbers. Default: a random one")
      ->check(is_seed);
  command.add_option("--repetition-penalty", request.repetition_penalty,
                     "Scales down logits of tokens in prompt and output" + defaults + "1");
  command.add_option("--presence-penalty", request.presence_penalty,
                     "Subtracted from logits of tokens in the output" + defaults + "0");
  command.add_option("--frequency-penalty", request.frequency_penalty,
                     "Subtracted once for each time the token is in the output" + defaults + "0");
}

Result<SamplingParams> SamplingFlags::resolve(const GenerationDefaults& defaults) const {
  auto params = resolve_sampling(request, defaults, random_seed());
  if (!params) return as_flag(params.error());
  return params;
}

}  // namespace replayssm::cli
