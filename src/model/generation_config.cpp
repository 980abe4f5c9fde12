#include "model/generation_config.h"

#include "model/json_file.h"

namespace replayssm {
namespace {

constexpr double kLargestTemperature = 100;
constexpr double kLargestPenalty = 100;
constexpr int kLargestTopK = 1 << 24;

Status read_number(const Fields& fields, std::string_view key, NumberRange range,
                   std::optional<double>& out) {
  if (!fields.has(key)) return {};
  double value = 0;
  REPLAYSSM_TRY(fields.number(key, range, value));
  out = value;
  return {};
}

}  // namespace

Result<GenerationDefaults> load_generation_defaults(const std::filesystem::path& file,
                                                    int vocab_rows) {
  auto root = read_json_object(file);
  if (!root) return root.error();
  const Fields fields(*root, file.filename().string() + ": ");

  GenerationDefaults defaults;
  if (fields.has("do_sample")) {
    bool do_sample = false;
    REPLAYSSM_TRY(fields.boolean("do_sample", do_sample));
    defaults.do_sample = do_sample;
  }
  if (fields.has("top_k")) {
    int top_k = 0;
    REPLAYSSM_TRY(fields.integer("top_k", {0, kLargestTopK}, top_k));
    defaults.top_k = top_k;
  }
  REPLAYSSM_TRY(read_number(fields, "temperature", {0, kLargestTemperature}, defaults.temperature));
  REPLAYSSM_TRY(read_number(fields, "top_p", {0, 1, true}, defaults.top_p));
  REPLAYSSM_TRY(read_number(fields, "min_p", {0, 1}, defaults.min_p));
  REPLAYSSM_TRY(read_number(fields, "repetition_penalty", {0, kLargestPenalty, true},
                            defaults.repetition_penalty));
  REPLAYSSM_TRY(read_number(fields, "presence_penalty", {-2, 2}, defaults.presence_penalty));
  REPLAYSSM_TRY(read_number(fields, "frequency_penalty", {-2, 2}, defaults.frequency_penalty));
  REPLAYSSM_TRY(fields.integers("eos_token_id", {0, vocab_rows - 1}, defaults.eos));
  return defaults;
}

}  // namespace replayssm
