// A whole sequence as bytes: pause and resume.
//
// The archive holds a magic number with a version, the model's fingerprint, tokens, the sampling
// state (parameters and number of output tokens; the rest follows from the tokens), the counters,
// and the image of cache/sequence_image.h; then a 64-bit XXH3 hash of all of it. For use on the
// kind of machine that wrote it: numbers are in the machine's byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/sequence.h"
#include "ops/linear_ops.h"

namespace replayssm {

// The sequence is not changed.
Result<std::vector<std::byte>> archive_sequence(const Sequence& sequence, SequenceMemory& memory,
                                                const LinearOps& ops, std::uint64_t fingerprint);

// A sequence that goes on as the archived one would have. Refused, with nothing changed: bytes that
// are damaged or not an archive, another model or format, pools that are full.
Result<Sequence> restore_sequence(std::span<const std::byte> archive, SequenceMemory& memory,
                                  const LinearOps& ops, std::uint64_t fingerprint);

}  // namespace replayssm
