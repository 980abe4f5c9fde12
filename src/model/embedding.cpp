#include "model/embedding.h"

#include "model/norm.h"
#include "model/widen.h"

namespace replayssm {

void embed(const WeightMatrix& embedding, TokenId token, DType type, float* out) {
  widen_block(embedding, token, 1, 0, embedding.cols, out);
  if (type == DType::bf16) round_to_bf16(out, static_cast<std::size_t>(embedding.cols));
}

}  // namespace replayssm
