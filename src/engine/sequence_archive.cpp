#include "engine/sequence_archive.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/byte_stream.h"
#include "cache/sequence_image.h"

namespace replayssm {
namespace {

constexpr std::uint64_t kMagic = 0x0400'6d73'7379'6c70u;  // "plyssm", version 4

std::uint64_t hash(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// Field by field, so that no padding gets into the bytes.
template <class Params, class Field>
Status for_each_field(Params& p, Field&& field) {
  REPLAYSSM_TRY(field(p.temperature));
  REPLAYSSM_TRY(field(p.top_k));
  REPLAYSSM_TRY(field(p.top_p));
  REPLAYSSM_TRY(field(p.min_p));
  REPLAYSSM_TRY(field(p.repetition_penalty));
  REPLAYSSM_TRY(field(p.presence_penalty));
  REPLAYSSM_TRY(field(p.frequency_penalty));
  return field(p.seed);
}

}  // namespace

Result<std::vector<std::byte>> archive_sequence(const Sequence& sequence, SequenceMemory& memory,
                                                const LinearOps& ops, std::uint64_t fingerprint) {
  ByteWriter out;
  out.put(kMagic);
  out.put(fingerprint);
  out.put(static_cast<std::int32_t>(sequence.prompt_tokens));
  out.put(static_cast<std::int32_t>(sequence.sampling.outputs()));
  out.put(static_cast<std::int32_t>(sequence.tokens.size()));
  out.put_bytes(std::as_bytes(std::span(sequence.tokens)));
  REPLAYSSM_TRY(for_each_field(sequence.sampling.params(), [&](const auto& value) -> Status {
    out.put(value);
    return {};
  }));
  out.put(sequence.counters);
  REPLAYSSM_TRY(write_image(memory, sequence.memory, ops, out));
  out.put(hash(out.bytes()));
  return std::move(out).take();
}

Result<Sequence> restore_sequence(std::span<const std::byte> archive, SequenceMemory& memory,
                                  const LinearOps& ops, std::uint64_t fingerprint) {
  if (archive.size() < sizeof(kMagic) + sizeof(std::uint64_t)) {
    return Error{fmt::format("archived sequence: {} bytes are too few", archive.size())};
  }
  const auto body = archive.first(archive.size() - sizeof(std::uint64_t));
  ByteReader end(archive.subspan(body.size()));
  std::uint64_t stored_hash = 0;
  REPLAYSSM_TRY(end.get(stored_hash));
  ByteReader in(body);
  std::uint64_t magic = 0;
  REPLAYSSM_TRY(in.get(magic));
  if (magic != kMagic) return Error{"archived sequence: not an archive of this version"};
  if (stored_hash != hash(body)) return Error{"archived sequence: damaged, its hash differs"};
  std::uint64_t model = 0;
  REPLAYSSM_TRY(in.get(model));
  if (model != fingerprint) return Error{"archived sequence: made with another model"};

  Sequence sequence;
  std::int32_t prompt_tokens = 0;
  std::int32_t outputs = 0;
  std::int32_t tokens = 0;
  REPLAYSSM_TRY(in.get(prompt_tokens));
  REPLAYSSM_TRY(in.get(outputs));
  REPLAYSSM_TRY(in.get(tokens));
  if (prompt_tokens < 0 || outputs < 0 || tokens < prompt_tokens || tokens < outputs ||
      static_cast<std::size_t>(tokens) > in.left() / sizeof(TokenId)) {
    return Error{
        fmt::format("archived sequence: {} tokens with {} of a prompt and {} of output "
                    "do not fit together",
                    tokens, prompt_tokens, outputs)};
  }
  sequence.prompt_tokens = prompt_tokens;
  sequence.tokens.resize(static_cast<std::size_t>(tokens));
  REPLAYSSM_TRY(in.get_bytes(std::as_writable_bytes(std::span(sequence.tokens))));
  SamplingParams params;
  REPLAYSSM_TRY(for_each_field(params, [&](auto& value) { return in.get(value); }));
  REPLAYSSM_TRY(in.get(sequence.counters));
  const std::span<const TokenId> all(sequence.tokens);
  const auto first_output = all.size() - static_cast<std::size_t>(outputs);
  sequence.sampling = SamplingState(params);
  sequence.sampling.add_prompt(all.first(first_output));
  for (const TokenId token : all.subspan(first_output)) sequence.sampling.add_output(token);

  auto residence = read_image(memory, ops, in);
  if (!residence) return residence.error();
  if (in.left() != 0 || residence->cursor().committed.tokens > tokens) {
    return Error{"archived sequence: its memory and its tokens do not fit together"};
  }
  sequence.memory = std::move(*residence);
  return sequence;
}

}  // namespace replayssm
