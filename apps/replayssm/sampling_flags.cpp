#include "sampling_flags.h"

#include <algorithm>
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
  command.add_option("--seed", request.seed, "Seed of the random numbers. Default: a random one");
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
