// A prefix cache over pools that the host cannot touch behaves as over its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "cache/prefix_cache.h"
#include "cache/sequence_image.h"
#include "memory_spaces.h"
#include "small_layout.h"

namespace replayssm {
namespace {

class PrefixCacheTest : public InEitherSpace {
 protected:
  // A sequence of 13 tokens whose memory was written; as floats, the bytes are finite.
  Residence written_sequence() { return written_sequence(memory_); }
  Residence written_sequence(SequenceMemory& memory) {
    Residence sequence = memory.admit({Depth{13}, Depth{8}}).value();
    std::mt19937 random(3);
    for (const MemoryRegion& region : regions_of(memory, sequence)) {
      std::vector<std::byte> bytes(region.total());
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0x3fu);
      put_bytes(space(), region, std::move(bytes));
    }
    return sequence;
  }

  // States, conv tails, rings and pages of a sequence.
  static std::vector<MemoryRegion> regions_of(SequenceMemory& memory, const Residence& sequence) {
    const auto rings = memory.rows().row_memory(sequence.row());
    std::vector<MemoryRegion> all(rings.begin(), rings.end());
    all.push_back(memory.slots().tail_memory(sequence.base()));
    for (const StateView& view : memory.views().states) {
      float* state = static_cast<float*>(view.data) + sequence.base().value * view.slot_stride;
      all.push_back({reinterpret_cast<std::byte*>(state),
                     memory.layout().heads.state_elements() * sizeof(float)});
    }
    for (const PageId page : sequence.pages()) {
      all.push_back(memory.pages().page_memory(page, memory.layout().page_tokens)[0]);
    }
    return all;
  }

  // The image says all that a sequence reads.
  std::vector<std::byte> image_of(const Residence& sequence) { return image_of(memory_, sequence); }
  std::vector<std::byte> image_of(SequenceMemory& memory, const Residence& sequence) {
    ByteWriter out;
    EXPECT_TRUE(write_image(memory, sequence, ops(), out).ok());
    return std::move(out).take();
  }

  SequenceMemory memory_{small_layout(), {4, 6, 24}, space(), Poison::on};
  PrefixCache cache_{memory_, ops(), {2, std::int64_t{1} << 22}};
  std::vector<TokenId> tokens_ = [] {
    std::vector<TokenId> tokens(13);
    std::iota(tokens.begin(), tokens.end(), 1);
    return tokens;
  }();
};

INSTANTIATE_TEST_SUITE_P(Spaces, PrefixCacheTest, testing::Bool(), space_name);

TEST_P(PrefixCacheTest, AResumedSequenceHasTheBytesOfTheOneThatWasKept) {
  const Residence sequence = written_sequence();
  const auto before = image_of(sequence);
  ASSERT_TRUE(cache_.keep_fork(tokens_, sequence).value());
  const auto match = cache_.find(tokens_, 13);
  ASSERT_EQ(match.tokens, 13);
  const auto resumed = cache_.resume(match);
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_EQ(image_of(*resumed), before);
}

TEST_P(PrefixCacheTest, AnEntryGoesToTheHostAndComesBackAsItWas) {
  const auto before = [&] {
    Residence sequence = written_sequence();
    const auto image = image_of(sequence);
    EXPECT_TRUE(cache_.keep(tokens_, std::move(sequence)));
    return image;
  }();
  ASSERT_TRUE(cache_.evict_one());
  EXPECT_GT(cache_.host_bytes(), 0);
  EXPECT_EQ(memory_.pages().used(), 0);
  const auto resumed = cache_.resume(cache_.find(tokens_, 13));
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_EQ(cache_.host_restores(), 1);
  EXPECT_EQ(image_of(*resumed), before);
}

TEST_P(PrefixCacheTest, ACheckpointServesItsDepthWithTheConvTailInTheRing) {
  const Residence sequence = written_sequence();
  const auto depth = std::span<const TokenId>(tokens_).first(8);
  ASSERT_TRUE(cache_.keep_checkpoint(depth, sequence).value());
  const auto resumed = cache_.resume(cache_.find(depth, 8));
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_EQ(resumed->cursor(), (Cursor{Depth{8}, Depth{8}}));
  // Inputs 5, 6 and 7 of every layer stand in the ring as they do in the tail.
  const MemoryRegion tails = memory_.slots().tail_memory(resumed->base());
  const MemoryRegion rings = memory_.rows().row_memory(resumed->row()).back();
  const auto tail = bytes_of(space(), tails);
  const auto ring = bytes_of(space(), rings);
  const std::size_t bytes = tails.bytes / 3;
  for (std::size_t layer = 0; layer < tails.count; ++layer) {
    for (int i = 0; i < 3; ++i) {
      const auto row = static_cast<std::size_t>(small_layout().geometry.conv_row(Depth{5 + i}));
      EXPECT_TRUE(std::equal(
          tail.begin() + static_cast<std::ptrdiff_t>(layer * tails.bytes + i * bytes),
          tail.begin() + static_cast<std::ptrdiff_t>(layer * tails.bytes + (i + 1) * bytes),
          ring.begin() + static_cast<std::ptrdiff_t>(layer * rings.bytes + row * bytes)));
    }
  }
  // It has no row of its own: to the host it goes by one that it borrows.
  ASSERT_TRUE(cache_.evict_one());
  EXPECT_TRUE(cache_.resume(cache_.find(depth, 8)).ok());
}

// What makes way for an entry that comes back takes the host memory that is left, not the entry's.
TEST_P(PrefixCacheTest, AnEntryOnItsWayBackIsNotForgottenForTheOneThatMakesWay) {
  std::int64_t bytes = 0;
  std::vector<std::byte> before;
  const auto kept = [&](PrefixCache& cache, std::span<const TokenId> tokens) {
    Residence sequence = written_sequence();
    bytes =
        GetParam() ? ParkedSequence::bytes_of(memory_, sequence) : image_bytes(memory_, sequence);
    before = image_of(sequence);
    EXPECT_TRUE(cache.keep(tokens, std::move(sequence)));
  };
  {
    PrefixCache only_measured(memory_, ops(), {1, 0});
    kept(only_measured, tokens_);
  }
  PrefixCache cache(memory_, ops(), {1, bytes + bytes / 2});
  kept(cache, tokens_);
  ASSERT_TRUE(cache.evict_one());
  ASSERT_EQ(cache.host_bytes(), bytes);
  std::vector<TokenId> others(tokens_.rbegin(), tokens_.rend());
  kept(cache, others);
  const auto resumed = cache.resume(cache.find(tokens_, 13));
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_EQ(image_of(*resumed), before);
  EXPECT_EQ(cache.find(tokens_, 13).tokens, 13);
}

// A drafter on the host beside a model on a device: its keys and values are plain memory, and go
// wherever the others go.
TEST_P(PrefixCacheTest, ADraftersPagesOnTheHostTravelWithTheOthers) {
  SequenceLayout layout = small_layout();
  layout.draft = {2, 1, 64, 0, true};
  SequenceMemory memory(layout, {4, 6, 24}, space(), Poison::on);
  EXPECT_EQ(
      memory.pages().bytes(),
      24 * layout.page_tokens * (layout.kv_bytes_per_token() - layout.host_kv_bytes_per_token()));
  PrefixCache cache(memory, ops(), {2, std::int64_t{1} << 22});
  std::vector<std::byte> before;
  {
    Residence sequence = written_sequence(memory);
    for (std::size_t i = 0; i < sequence.pages().size(); ++i) {
      for (int layer = 1; layer < 3; ++layer) {
        const KvView kv = memory.pages().kv(layer);
        for (void* array : {kv.keys, kv.values}) {
          const std::size_t bytes = memory.pages().position_bytes(layer) * 4;
          std::fill_n(static_cast<std::byte*>(array) + sequence.pages()[i].value * bytes, bytes,
                      static_cast<std::byte>(10 * i + layer));
        }
      }
    }
    before = image_of(memory, sequence);
    // The last page is partial: a fork copies it.
    const Residence fork = memory.fork(sequence).value();
    EXPECT_EQ(image_of(memory, fork), before);
    ASSERT_TRUE(cache.keep(tokens_, std::move(sequence)));
  }
  ASSERT_TRUE(cache.evict_one());
  EXPECT_EQ(memory.pages().used(), 0);
  // Into other pages than before, whose memory is poison by now.
  const Residence other = memory.admit({Depth{5}, Depth{0}}).value();
  const auto resumed = cache.resume(cache.find(tokens_, 13));
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_EQ(image_of(memory, *resumed), before);
}

}  // namespace
}  // namespace replayssm
