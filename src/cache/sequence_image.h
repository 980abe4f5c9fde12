// A sequence's memory as bytes: how it moves out of the pools and back.
//
// The image holds, in this order: the formats it was made with; t and c; if c > 0 the checkpoint as
// float32 [layers, value_heads, V, K] and (with replay) the conv tail [layers, 3, channels]; the
// records of positions c .. t - 1; the conv inputs that a next step can need, positions min(t - 4,
// c + L - 3) .. t - 1; keys and values of positions 0 .. t - 1, all layers of one position after
// the other. Everything but the state is bytes as stored. It is addressed by position, so the
// receiving pools may have other row, slot, page and ring sizes; fold block, shapes and number
// formats must be the same. Nothing is folded to make it.
#pragma once

#include <cstdint>

#include "cache/byte_stream.h"
#include "cache/sequence_memory.h"
#include "core/result.h"
#include "ops/linear_ops.h"

namespace replayssm {

// The size of its image.
std::int64_t image_bytes(SequenceMemory& memory, const Residence& sequence);

// Appends the image. The sequence is not changed. `ops` is the backend that owns the state layout.
Status write_image(SequenceMemory& memory, const Residence& sequence, const LinearOps& ops,
                   ByteWriter& out);

// Takes in a sequence that continues where the image was made. Refused, with nothing changed, when
// the formats differ (naming the first that does), bytes are missing, or the pools are full.
Result<Residence> read_image(SequenceMemory& memory, const LinearOps& ops, ByteReader& in);

}  // namespace replayssm
