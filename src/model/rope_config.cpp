#include "model/rope_config.h"

#include <cmath>
#include <optional>

namespace replayssm {
namespace {

constexpr double kLargestTheta = 1e15;
constexpr double kLargestFactor = 1e6;
constexpr int kMostPositions = 1 << 30;

// Where YaRN's softmax temperature goes: 0.1 m ln(factor) + 1. Source: Peng et al., YaRN (arXiv
// 2309.00071), with the m of later models.
double yarn_scale(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

Status read_yarn(const Fields& fields, int max_positions, RopeConfig& rope) {
  rope.original_max_positions = max_positions;
  REPLAYSSM_TRY(fields.integer("original_max_position_embeddings", {1, kMostPositions},
                               rope.original_max_positions));
  rope.factor = static_cast<double>(max_positions) / rope.original_max_positions;
  REPLAYSSM_TRY(fields.number("factor", {0, kLargestFactor, true}, rope.factor));

  double m = 0;
  double m_all = 0;
  REPLAYSSM_TRY(fields.number("mscale", {0, kLargestFactor}, m));
  REPLAYSSM_TRY(fields.number("mscale_all_dim", {0, kLargestFactor}, m_all));
  rope.attention_factor = m != 0 && m_all != 0
                              ? yarn_scale(rope.factor, m) / yarn_scale(rope.factor, m_all)
                              : yarn_scale(rope.factor, 1.0);
  REPLAYSSM_TRY(
      fields.number("attention_factor", {0, kLargestFactor, true}, rope.attention_factor));
  REPLAYSSM_TRY(fields.number("beta_fast", {0, kLargestFactor, true}, rope.beta_fast));
  REPLAYSSM_TRY(fields.number("beta_slow", {0, kLargestFactor, true}, rope.beta_slow));
  if (rope.beta_slow > rope.beta_fast) {
    return fields.refuse_field("beta_slow",
                               fmt::format("a number up to beta_fast ({})", rope.beta_fast));
  }
  return fields.boolean("truncate", rope.truncate);
}

}  // namespace

Result<RopeConfig> read_rope(const Fields& text, int head_dim, int max_positions,
                             double rotary_factor) {
  // The values beside the object are defaults of those inside, as in Hugging Face's own reader,
  // which also lets rope_scaling win over rope_parameters.
  std::optional<Fields> inner;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (inner || !text.has(key)) continue;
    auto object = text.object(key);
    if (!object) return object.error();
    inner = *object;
  }

  RopeConfig rope;
  const Fields* outer_and_inner[] = {&text, inner ? &*inner : nullptr};
  for (const Fields* fields : outer_and_inner) {
    if (fields == nullptr) continue;
    REPLAYSSM_TRY(fields->number("rope_theta", {1, kLargestTheta, true}, rope.theta));
    REPLAYSSM_TRY(fields->number("partial_rotary_factor", {0, 1, true}, rotary_factor));
  }
  rope.rotary_dim = static_cast<int>(head_dim * rotary_factor);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    return refuse("partial_rotary_factor", rotary_factor,
                  fmt::format("a share of head_dim ({}) that is even and at least 2", head_dim));
  }

  if (!inner) return rope;
  std::string type = "default";
  REPLAYSSM_TRY(inner->text(inner->has("rope_type") ? "rope_type" : "type", type));
  if (type == "yarn") {
    rope.kind = RopeKind::yarn;
    REPLAYSSM_TRY(read_yarn(*inner, max_positions, rope));
  } else if (type != "default" && type != "mrope") {
    return inner->refuse_field(inner->has("rope_type") ? "rope_type" : "type",
                               "default, mrope or yarn");
  }
  return rope;
}

}  // namespace replayssm
