#include "replay/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace replayssm {
namespace {

std::int64_t pages_for(std::int64_t tokens, int page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

std::int64_t row_bytes(const MemoryNeeds& n) {
  return n.slot + n.ring_per_row + n.conv_ring_per_row;
}

std::int64_t kept_sequences(const MemoryNeeds& n, std::int64_t rows) {
  return n.kept_sequences_least == 0 ? 0 : std::max<std::int64_t>(n.kept_sequences_least, rows);
}

std::int64_t bytes_of_rows(const MemoryNeeds& n, std::int64_t rows) {
  const std::int64_t kept = kept_sequences(n, rows);
  return (rows + kept) * row_bytes(n) + kept * n.slot;
}

std::int64_t fixed_bytes(const MemoryNeeds& n) {
  return n.weights + n.workspace + n.drafter + n.graphs + n.slots_beyond_rows * n.slot + n.null_row;
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024.0;
  int unit = 0;
  while (value >= 1024.0 && unit < 3) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Result<std::int64_t> parse_bytes(std::string_view field, std::string_view text) {
  static constexpr std::string_view kAccepted =
      "a positive size such as 24GiB, 512MiB, 1.5GB or bytes";
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - copy.c_str()));
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  if (unit == "KiB") scale = 1024.0;
  if (unit == "MiB") scale = 1024.0 * 1024;
  if (unit == "GiB") scale = 1024.0 * 1024 * 1024;
  if (unit == "TiB") scale = 1024.0 * 1024 * 1024 * 1024;
  if (unit == "KB") scale = 1e3;
  if (unit == "MB") scale = 1e6;
  if (unit == "GB") scale = 1e9;
  if (unit == "TB") scale = 1e12;
  const double bytes = number * scale;
  if (end == copy.c_str() || !(bytes >= 1) || bytes > 9e18) return refuse(field, text, kAccepted);
  return static_cast<std::int64_t>(std::llround(bytes));
}

Result<MemoryPlan> plan_memory(const MemoryNeeds& needs) {
  const std::int64_t page_bytes = needs.kv_per_token * needs.page_tokens;
  const std::int64_t context_pages = pages_for(needs.context_length, needs.page_tokens);
  const std::int64_t wanted = std::max(1, needs.max_running_requests);
  const std::int64_t kept_least = kept_sequences(needs, wanted);
  const std::int64_t smallest =
      fixed_bytes(needs) + bytes_of_rows(needs, wanted) + context_pages * page_bytes;
  if (smallest > needs.budget) {
    const std::string kept =
        kept_least == 0
            ? ""
            : fmt::format(" prefix cache {} ({} sequences and {} states),",
                          format_bytes(bytes_of_rows(needs, wanted) - wanted * row_bytes(needs)),
                          kept_least, kept_least);
    return Error{fmt::format(
        "memory: {} is not enough; at least {} ({} bytes) is needed: weights {}, workspace {}, {} "
        "running "
        "request{} x {} (state {}, records {}, conv inputs {}),{} KV for one context of {} tokens "
        "{}",
        format_bytes(needs.budget), format_bytes(smallest), smallest, format_bytes(needs.weights),
        format_bytes(needs.workspace + needs.drafter + needs.graphs), wanted,
        wanted == 1 ? "" : "s", format_bytes(row_bytes(needs)), format_bytes(needs.slot),
        format_bytes(needs.ring_per_row), format_bytes(needs.conv_ring_per_row), kept,
        needs.context_length, format_bytes(context_pages * page_bytes))};
  }

  const std::int64_t room = needs.budget - fixed_bytes(needs);
  std::int64_t rows = needs.max_running_requests;
  if (rows == 0) {
    rows = needs.max_useful_requests;
    while (rows > 1 && bytes_of_rows(needs, rows) + rows * context_pages * page_bytes > room) {
      --rows;
    }
  }
  const std::int64_t kept = kept_sequences(needs, rows);
  const std::int64_t kv_room = room - bytes_of_rows(needs, rows);
  // A model without keys and values has no pages; the ids of pages are 32 bits.
  const std::int64_t pages =
      page_bytes == 0 ? 0
                      : std::min<std::int64_t>({kv_room / page_bytes, (rows + kept) * context_pages,
                                                std::numeric_limits<std::int32_t>::max()});

  MemoryPlan plan;
  plan.rows = static_cast<int>(rows);
  plan.kept_rows = static_cast<int>(kept);
  plan.slots = static_cast<int>(rows + 2 * kept) + needs.slots_beyond_rows;
  plan.pages = static_cast<int>(pages);
  plan.budget = needs.budget;
  const auto add = [&](std::string name, std::int64_t bytes, std::string note) {
    plan.lines.push_back({std::move(name), bytes, std::move(note)});
    plan.used += bytes;
  };
  add("weights", needs.weights, "");
  add("KV pages", pages * page_bytes,
      fmt::format("{} pages of {} tokens, {} a token", pages, needs.page_tokens,
                  format_bytes(needs.kv_per_token)));
  const std::int64_t all_rows = rows + kept;
  const std::string cached = kept == 0 ? "" : fmt::format(", {} of the prefix cache", kept);
  const std::string cached_slots =
      kept == 0 ? "" : fmt::format(", {} of the prefix cache", 2 * kept);
  add("state slots", plan.slots * needs.slot,
      fmt::format("{} x {}{}", plan.slots, format_bytes(needs.slot), cached_slots));
  add("record rings", all_rows * needs.ring_per_row,
      fmt::format("{} x {}{}", all_rows, format_bytes(needs.ring_per_row), cached));
  add("conv rings", all_rows * needs.conv_ring_per_row + needs.null_row,
      fmt::format("{} x {}{}", all_rows, format_bytes(needs.conv_ring_per_row), cached));
  add("workspace", needs.workspace, "");
  if (needs.drafter != 0) add("drafter", needs.drafter, "");
  if (needs.graphs != 0) add("graphs", needs.graphs, "");
  return plan;
}

}  // namespace replayssm
