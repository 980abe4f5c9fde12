#include "engine/sampling_params.h"

#include <string_view>

namespace replayssm {
namespace {

// Written so that NaN is refused too.
Status check_range(std::string_view field, double value, bool accepted, std::string_view range) {
  if (!accepted) return refuse(field, value, range);
  return {};
}

template <class T>
T first_of(const std::optional<T>& request, const std::optional<T>& file, T fallback) {
  return request.value_or(file.value_or(fallback));
}

}  // namespace

Result<SamplingParams> resolve_sampling(const SamplingRequest& request,
                                        const GenerationDefaults& defaults,
                                        std::uint64_t fallback_seed) {
  SamplingParams p;
  p.temperature = first_of(request.temperature, defaults.temperature, p.temperature);
  if (!request.temperature && defaults.do_sample == false) p.temperature = 0.0;
  p.top_k = first_of(request.top_k, defaults.top_k, p.top_k);
  p.top_p = first_of(request.top_p, defaults.top_p, p.top_p);
  p.min_p = first_of(request.min_p, defaults.min_p, p.min_p);
  p.repetition_penalty =
      first_of(request.repetition_penalty, defaults.repetition_penalty, p.repetition_penalty);
  p.presence_penalty =
      first_of(request.presence_penalty, defaults.presence_penalty, p.presence_penalty);
  p.frequency_penalty =
      first_of(request.frequency_penalty, defaults.frequency_penalty, p.frequency_penalty);
  p.seed = request.seed.value_or(fallback_seed);

  REPLAYSSM_TRY(check_range("temperature", p.temperature,
                            p.temperature >= 0.0 && p.temperature <= 100.0, "0 (greedy) to 100"));
  REPLAYSSM_TRY(check_range("top_k", p.top_k, p.top_k >= 0, "0 (off) or a positive number"));
  REPLAYSSM_TRY(
      check_range("top_p", p.top_p, p.top_p > 0.0 && p.top_p <= 1.0, "more than 0, at most 1"));
  REPLAYSSM_TRY(check_range("min_p", p.min_p, p.min_p >= 0.0 && p.min_p <= 1.0, "0 to 1"));
  REPLAYSSM_TRY(check_range("repetition_penalty", p.repetition_penalty,
                            p.repetition_penalty >= 0.01 && p.repetition_penalty <= 100.0,
                            "0.01 to 100"));
  REPLAYSSM_TRY(check_range("presence_penalty", p.presence_penalty,
                            p.presence_penalty >= -2.0 && p.presence_penalty <= 2.0, "-2 to 2"));
  REPLAYSSM_TRY(check_range("frequency_penalty", p.frequency_penalty,
                            p.frequency_penalty >= -2.0 && p.frequency_penalty <= 2.0, "-2 to 2"));
  return p;
}

}  // namespace replayssm
