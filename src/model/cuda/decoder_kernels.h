// What a decoder does on the GPU between its matrix products and the operations on recurrent
// states: norms, rotations, gates. bf16 in and out; every sum is fp32 and belongs to one token, so
// a token's bits depend on the token alone. Values are rounded to bf16 where model/norm.h and
// model/rope.h say that bf16 models do. All pointers are device memory, 16-byte aligned; widths and
// strides are elements, multiples of 8.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/bfloat16.h"
#include "core/result.h"
#include "model/cuda/decoder_buffers.h"

namespace replayssm::cuda {

// In the place of a token: the one that the step before chose for its row of logits of this number.
constexpr int token_chosen_in(int row) { return -2 - row; }

// out[i] = table[tokens[i]]; zeros for token -1, or if that was chosen.
struct EmbedArgs {
  const int* tokens = nullptr;  // [count] or token_chosen_in()
  const int* chosen = nullptr;  // [rows of logits of the step before]; may be null without those
  const bf16* table = nullptr;  // [vocabulary, width]
  bf16* out = nullptr;          // [count, width]
  int count = 0;
  int width = 0;
};
Status launch_embed(const EmbedArgs& args, cudaStream_t stream);

// out[i] = x[row(i)] * rsqrt(mean(x^2) + eps) * scale, rounded once; row(i) = rows[i], or i.
struct NormArgs {
  const bf16* x = nullptr;       // [.., width]
  const int* rows = nullptr;     // [count], or null
  const float* scale = nullptr;  // [width]
  float eps = 0;
  bf16* out = nullptr;  // [count, width]
  int count = 0;
  int width = 0;
};
Status launch_rms_norm(const NormArgs& args, cudaStream_t stream);

// out = scale * (x * rsqrt(mean(x^2) + eps)) * silu(gate), per value head.
struct GatedNormArgs {
  const bf16* x = nullptr;     // [tokens, HV, V]
  const bf16* gate = nullptr;  // of token 0; tokens lie gate_stride apart
  std::int64_t gate_stride = 0;
  const float* scale = nullptr;  // [V]
  float eps = 0;
  bf16* out = nullptr;  // [tokens, HV, V]
  int tokens = 0;
  int value_heads = 0;
};
Status launch_gated_norm(const GatedNormArgs& args, cudaStream_t stream);

// Queries, keys and values of attention layers from where a product left them: norms of the heads,
// rotation of the first 2 * pairs dimensions, keys and values into their pages.
struct HeadArgs {
  const bf16* projected = nullptr;  // of token 0: heads * query_width, then keys, then values
  std::int64_t stride = 0;
  int query_width = 0;  // from one head's queries to the next one's: head_dim, or 2 head_dim with
                        // a gate behind each
  const float* q_scale = nullptr;  // [head_dim]
  const float* k_scale = nullptr;  // [head_dim]
  float eps = 0;
  const float* frequencies = nullptr;  // [pairs], radians a position
  float attention_factor = 1;
  int pairs = 0;                   // a multiple of 8
  const int* positions = nullptr;  // [tokens]
  const int* places = nullptr;     // [tokens] page * page_tokens + offset; negative: not written
  bf16* queries = nullptr;         // [tokens, heads, head_dim]
  bf16* keys = nullptr;            // [pages, page_tokens, kv_heads, head_dim]
  bf16* values = nullptr;          // as keys
  int tokens = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;  // a multiple of 8, at most 256
};
Status launch_place_heads(const HeadArgs& args, cudaStream_t stream);

// x = x * sigmoid(gate), per query head.
struct GateHeadsArgs {
  bf16* x = nullptr;           // [tokens, heads, head_dim]
  const bf16* gate = nullptr;  // of token 0 and head 0; heads lie 2 head_dim apart
  std::int64_t gate_stride = 0;
  int tokens = 0;
  int heads = 0;
  int head_dim = 0;
};
Status launch_gate_heads(const GateHeadsArgs& args, cudaStream_t stream);

// out = silu(gate) * up.
struct SiluProductArgs {
  const bf16* gate_up = nullptr;  // [tokens, 2 width], gates then ups
  bf16* out = nullptr;            // [tokens, width]
  int tokens = 0;
  int width = 0;
};
Status launch_silu_product(const SiluProductArgs& args, cudaStream_t stream);

// Numbers within +-half_width, the same for the same seed.
struct RandomArgs {
  bf16* to = nullptr;  // [count]
  std::int64_t count = 0;
  float half_width = 0;
  std::uint64_t seed = 0;
};
Status launch_random(const RandomArgs& args, cudaStream_t stream);

// The token of the largest logit of each row, the first of several; -1 in a row with a logit that
// is not finite.
struct BestTokenArgs {
  const float* logits = nullptr;  // [rows, stride]
  std::int64_t stride = 0;
  int vocabulary = 0;  // of each row, the first so many count
  int rows = 0;
  BestToken* parts = nullptr;  // [rows, kBestParts], for the two launches' own use
  int* best = nullptr;         // [rows]
};
Status launch_best_token(const BestTokenArgs& args, cudaStream_t stream);

}  // namespace replayssm::cuda
