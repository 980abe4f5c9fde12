// Fields that the configurations of models and drafters share. Errors name file, field, value and
// what is accepted.
#pragma once

#include <initializer_list>
#include <string_view>

#include "core/dtype.h"
#include "core/result.h"
#include "model/config.h"
#include "model/json_file.h"

namespace replayssm {

// Sizes beyond these are mistakes in the file; with them, no product of two sizes that is used
// anywhere leaves 32 bits, except rows times columns, which is taken in 64.
inline constexpr IntRange kWidth{1, 1 << 18};
inline constexpr IntRange kLayers{1, 1024};
inline constexpr IntRange kHeads{1, 1024};
inline constexpr IntRange kPositions{1, 1 << 30};
inline constexpr IntRange kHeadDim{2, 1024};

// Refuses fields that would change the mathematics: attention_bias, hidden_act, output_gate_type.
Status refuse_unsupported(const Fields& fields);

// num_attention_heads, num_key_value_heads, head_dim and attn_output_gate; where the last two are
// absent, `attention` keeps what it has.
Status read_attention(const Fields& text, AttentionShape& attention);

// The type named by `key`; absent: `out` stays. `accepted_text` names the accepted ones.
Status read_type(const Fields& fields, std::string_view key, std::initializer_list<DType> accepted,
                 std::string_view accepted_text, DType& out);

// torch_dtype or dtype.
Status read_weight_type(const Fields& fields, DType& out);

}  // namespace replayssm
