// Where one value head's data lies in the views: tokens of a step, records of a ring, states.
#pragma once

#include "ops/reference/head_state.h"

namespace replayssm::reference {

// Row `token` of the packed arrays, as value head `head` sees it. `key_type`: how a key is stored.
HeadToken token_of(const StepArgs& args, int token, int head, DType key_type);

// The record of `position` in the ring of `row`: only key, gate and, apart, the correction.
struct HeadRecord {
  std::vector<double> key;         // [K] normalised; the norm is recomputed from the raw key
  std::vector<double> gate;        // [K]
  std::vector<double> correction;  // [V]
};
HeadRecord record_of(const HeadShape& shape, const FoldGeometry& geometry, const RingView& ring,
                     RowIndex row, Depth position, int head);

// S <- S diag(exp(g)) + d k^T
void add_record(HeadState& state, const HeadRecord& record);

// Appends a record of value head `head` and, with it, the key of its key head.
void append(const StepArgs& args, RowIndex row, Depth position, int token, int head,
            const std::vector<double>& correction);

// The state of one value head in a slot, [HV, V, K] in f64.
HeadState load(const HeadShape& shape, const StateView& states, SlotId slot, int head);
void store(const HeadShape& shape, const StateView& states, SlotId slot, int head,
           const HeadState& state);

}  // namespace replayssm::reference
