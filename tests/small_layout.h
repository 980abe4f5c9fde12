// Pools' layout of a model as small as they come: blocks of eight positions, pages of four.
#pragma once

#include "cache/sequence_memory.h"

namespace replayssm {

inline SequenceLayout small_layout() {
  SequenceLayout layout;
  layout.linear_layers = 2;
  layout.attention_layers = 1;
  layout.heads = {GateKind::gdn, 1, 1};
  layout.kv_heads = 1;
  layout.head_dim = 64;
  layout.geometry = FoldGeometry::make(8, 1).value();
  layout.page_tokens = 4;
  return layout;
}

}  // namespace replayssm
