#include "ops/advance.h"

#include "replay/cursor.h"

namespace replayssm {

void advance_on_host(const AdvanceArgs& args) {
  for (std::size_t i = 0; i < args.rows.size(); ++i) {
    const RowTokens& row = args.rows[i];
    const std::int32_t at = row.row.value;
    if (args.cursors.base[at] == kNullSlot) continue;
    const int accepted = args.accepted[i];
    const Cursor cursor{args.cursors.committed[at], args.cursors.checkpoint[at]};
    if (args.recurrence == Recurrence::packed) {
      args.cursors.committed[at] = args.cursors.checkpoint[at] = cursor.committed + accepted;
      if (accepted > 0) args.cursors.base[at] = args.cursors.home[at];
      continue;
    }
    const int blocks = row.phase == Phase::prefill
                           ? blocks_folded_by_chunk(cursor, row.tokens, args.geometry)
                           : blocks_folded_by_window(cursor, args.geometry);
    const Cursor next = advanced(cursor, blocks, accepted, args.geometry);
    args.cursors.committed[at] = next.committed;
    args.cursors.checkpoint[at] = next.checkpoint;
    if (blocks > 0) args.cursors.base[at] = args.cursors.home[at];
  }
}

}  // namespace replayssm
