// The attention of some query rows over pages of keys and values: a running softmax over blocks of
// positions. What a query row gets is a function of its query and of the keys and values that it
// sees, in ascending order; which rows share a call decides only what stays in cache.
#pragma once

#include <span>

#include "core/strong_id.h"
#include "model/config.h"
#include "model/model.h"

namespace replayssm {

// Keys that one step of the running softmax covers. Blocks begin at multiples of it, so the order
// of a query's operations depends on its position alone.
inline constexpr int kKeyBlock = 64;

// Keys and values that lie in no page.
struct OwnKv {
  const void* keys = nullptr;    // [positions, kv_heads, head_dim], of the pages' type
  const void* values = nullptr;  // the same
};

// Which positions a token sees: from first_key, or the last `window` up to its own, to its own, or
// to the end of its span.
struct Sight {
  int first_key = 0;
  int window = 0;  // positions, the token's own among them; 0: all
  bool whole_span = false;
};

// Consecutive tokens of one sequence, at first_position and after, for one kv head: `rows` = tokens
// x group query rows, token by token.
struct AttentionTask {
  AttentionShape shape;
  KvView kv;
  std::span<const PageId> pages;  // of positions 0 .. span_end - 1 or, with own, own_first - 1
  int first_position = 0;
  int tokens = 0;
  int span_end = 0;  // of the span that the tokens are part of: first_position + tokens or more
  Sight sight;
  OwnKv own;           // of positions own_first .. span_end - 1, in place of pages
  int own_first = -1;  // -1: pages hold all
  int kv_head = 0;
  const float* queries = nullptr;  // [rows, head_dim]
  float* sums = nullptr;           // [rows, head_dim], the result
  float* weights = nullptr;        // scratch [rows, kKeyBlock]
  float* largest = nullptr;        // scratch [rows]
  float* totals = nullptr;         // scratch [rows]
};

// sums[row] = sum_j softmax_j(queries[row] . key_j * head_dim^-1/2) value_j over the positions j
// that the row's token sees, fp32. Keys and values that a row does not see reach it not even as
// NaN; those it sees reach it if they are NaN. On the calling thread.
void attend(const AttentionTask& task);

}  // namespace replayssm
