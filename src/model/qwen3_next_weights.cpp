#include "model/qwen3_next_weights.h"

#include <array>

namespace replayssm {

Status read_fused_projections(TensorReader& reader, const std::string& prefix,
                              const ModelConfig& config, GdnWeights& out) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t key_heads = config.linear.key_heads;
  const std::int64_t group = config.linear.group();
  const std::int64_t values = group * kValueDim;
  const std::int64_t block = 2 * kKeyDim + 2 * values;

  // Rows [offset, offset + count) of the block of every key head.
  const auto append = [key_heads](std::vector<RowRange>& rows, std::int64_t block_rows,
                                  std::int64_t offset, std::int64_t count) {
    for (std::int64_t head = 0; head < key_heads; ++head) {
      rows.push_back({head * block_rows + offset, count});
    }
  };
  std::array qkvz{MatrixPart{&out.qkv, {}}, MatrixPart{&out.z, {}}};
  append(qkvz[0].rows, block, 0, kKeyDim);
  append(qkvz[0].rows, block, kKeyDim, kKeyDim);
  append(qkvz[0].rows, block, 2 * kKeyDim, values);
  append(qkvz[1].rows, block, 2 * kKeyDim + values, values);
  REPLAYSSM_TRY(reader.parts(prefix + "in_proj_qkvz.weight", key_heads * block, hidden, qkvz));

  std::array ba{MatrixPart{&out.b, {}}, MatrixPart{&out.a, {}}};
  append(ba[0].rows, 2 * group, 0, group);
  append(ba[1].rows, 2 * group, group, group);
  return reader.parts(prefix + "in_proj_ba.weight", key_heads * 2 * group, hidden, ba);
}

}  // namespace replayssm
