// The attention of some query rows over pages of keys and values: a running softmax over blocks of
// positions. What a query row gets is a function of its query and of the keys and values up to its
// position, in ascending order; which rows share a call decides only what stays in cache.
#pragma once

#include <span>

#include "core/strong_id.h"
#include "model/config.h"
#include "model/model.h"

namespace replayssm {

// Keys that one step of the running softmax covers. Blocks begin at multiples of it, so the order
// of a query's operations depends on its position alone.
inline constexpr int kKeyBlock = 64;

// Consecutive tokens of one sequence, at first_position and after, for one kv head: `rows` = tokens
// x group query rows, token by token.
struct AttentionTask {
  AttentionShape shape;
  KvView kv;
  std::span<const PageId> pages;  // of positions 0 .. first_position + tokens - 1
  int first_position = 0;
  int first_key = 0;  // positions before it are not attended to
  int tokens = 0;
  int kv_head = 0;
  const float* queries = nullptr;  // [rows, head_dim]
  float* sums = nullptr;           // [rows, head_dim], the result
  float* weights = nullptr;        // scratch [rows, kKeyBlock]
  float* largest = nullptr;        // scratch [rows]
  float* totals = nullptr;         // scratch [rows]
};

// sums[row] = sum_j softmax_j(queries[row] . key_j * head_dim^-1/2) value_j over the positions j up
// to the row's own, fp32. Keys and values past a row's position reach it not even as NaN; those it
// sees reach it if they are NaN. On the calling thread.
void attend(const AttentionTask& task);

}  // namespace replayssm
