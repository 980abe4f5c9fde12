// The token of a row of logits on the GPU, in the steps and the order of engine/sampler.h. All sums
// are of integers, so that they have no order: a weight is exp((x - largest) / temperature) in
// units of 2^-weight_bits(vocabulary). Every cut and the draw itself ask for the first element, in
// the row's order, at which a count or a sum of weights exceeds a target. A coarse histogram of the
// whole row gives the bin that holds it, finer ones of what is left of that bin the element.
//
// The order is that of ids, or, where top-k or top-p cut, that of descending logits and among equal
// ones of ids. One block a row. `Team` is its threads: on a GPU they share the work of each() and
// meet() is their barrier; on the CPU (tests/unit/token_choice_test.cpp) there is one.
#pragma once

#include <cstdint>

#include "model/cuda/token_choice.h"

namespace replayssm::cuda {

// Fractional bits of a weight: the sum of all of a vocabulary fits 62 bits.
__device__ __forceinline__ int weight_bits(int vocabulary) {
  int bits = 62;
  for (int n = 1; n < vocabulary; n *= 2) --bits;
  return bits;
}

// What is chosen from.
struct ChoiceRow {
  const float* logits = nullptr;       // [vocabulary]
  const std::uint32_t* mask = nullptr;  // null: every token
  int vocabulary = 0;
  float largest = 0;  // of the candidates
  double temperature = 1;
  double least = 0;  // weights below it are none
  double scale = 1;  // a weight's unit
  bool by_logit = false;

  __device__ __forceinline__ bool candidate(int token) const {
    return mask == nullptr || ((mask[token / 32] >> (token % 32)) & 1u) != 0;
  }
  __device__ __forceinline__ std::uint64_t weight(float logit) const {
    const double distance = static_cast<double>(logit) - static_cast<double>(largest);
    const double weight = exp(distance / temperature);
    return weight < least ? 0 : static_cast<std::uint64_t>(weight * scale + 0.5);
  }
  __device__ __forceinline__ int coarse_bin(int token, float logit) const {
    if (!by_logit) return token / ids_per_bin();
    return static_cast<int>(fminf((largest - logit) * 64.0f, kChoiceBins - 1.0f));
  }
  __device__ __forceinline__ int ids_per_bin() const {
    return (vocabulary + kChoiceBins - 1) / kChoiceBins;
  }
  // Ascending in the row's order, and no two alike.
  __device__ __forceinline__ std::uint64_t key(int token, float logit) const {
    if (!by_logit) return static_cast<std::uint64_t>(token);
    const std::uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 is 0
    const std::uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return static_cast<std::uint64_t>(~ascending) << 32 | static_cast<std::uint32_t>(token);
  }
  __device__ __forceinline__ static int token_of(std::uint64_t key) {
    return static_cast<int>(static_cast<std::uint32_t>(key));
  }
};

// Adds the candidates of [begin, end) to a histogram of coarse bins.
template <class Team>
__device__ __forceinline__ void count_candidates(const Team& team, const ChoiceRow& row, int begin,
                                                 int end, ChoiceBins& bins) {
  team.each(begin, end, [&](int token) {
    if (!row.candidate(token)) return;
    const float logit = row.logits[token];
    const int bin = row.coarse_bin(token, logit);
    team.add(bins.count[bin], 1u);
    const std::uint64_t weight = row.weight(logit);
    if (weight > 0) team.add(bins.sum[bin], weight);
  });
}

inline constexpr int kChoiceGroups = 64;    // of bins, summed up by a thread each
inline constexpr int kChoiceListed = 4096;  // elements of a bin that are kept apart

// One block's memory.
struct ChoiceScratch {
  ChoiceBins fine;
  std::uint64_t listed[kChoiceListed];  // keys
  std::uint64_t group_sum[kChoiceGroups];
  std::uint32_t group_count[kChoiceGroups];
  std::uint32_t list_size;
  std::uint32_t key_least, key_most;  // high words
  std::uint64_t sum;
  // A search's result so far.
  int bin;
  std::uint32_t bin_count;
  std::uint64_t before_sum;
  std::uint32_t before_count;
};

// An element with what lies before it in the order.
struct ChoiceElement {
  std::uint64_t key = 0;
  std::uint64_t sum_to_here = 0;  // its own weight included
};

template <class Team>
class ChoiceSearch {
 public:
  __device__ ChoiceSearch(const Team& team, const ChoiceRow& row, const ChoiceBins& coarse,
                          ChoiceScratch& scratch)
      : team_(team), row_(row), coarse_(coarse), s_(scratch) {
    sum_up(coarse_);
    std::uint64_t sum = 0;
    std::uint32_t count = 0;
    for (int g = 0; g < kChoiceGroups; ++g) {
      sum += s_.group_sum[g];
      count += s_.group_count[g];
    }
    total_ = sum;
    candidates_ = count;
    team_.meet();
  }

  __device__ std::uint64_t total() const { return total_; }
  __device__ std::uint32_t candidates() const { return candidates_; }

  // The first element at which more than so many have come, or a sum of weights exceeds `target`.
  // Precondition: there is one.
  __device__ ChoiceElement at_count(std::uint64_t target) { return find(target, true); }
  __device__ ChoiceElement at_sum(std::uint64_t target) { return find(target, false); }

 private:
  __device__ void sum_up(const ChoiceBins& bins) {
    constexpr int kEach = kChoiceBins / kChoiceGroups;
    team_.each(0, kChoiceGroups, [&](int g) {
      std::uint64_t sum = 0;
      std::uint32_t count = 0;
      for (int i = g * kEach; i < (g + 1) * kEach; ++i) {
        sum += bins.sum[i];
        count += bins.count[i];
      }
      s_.group_sum[g] = sum;
      s_.group_count[g] = count;
    });
    team_.meet();
  }

  // The bin in which the target is passed; what lies before it is added to s_.before_*.
  __device__ void find_bin(const ChoiceBins& bins, std::uint64_t target, bool by_count) {
    sum_up(bins);
    if (team_.first()) {
      constexpr int kEach = kChoiceBins / kChoiceGroups;
      std::uint64_t sum = s_.before_sum;
      std::uint32_t count = s_.before_count;
      const auto passes = [&](std::uint64_t more_sum, std::uint32_t more_count) {
        return (by_count ? count + static_cast<std::uint64_t>(more_count) : sum + more_sum) >
               target;
      };
      int g = 0;
      for (; g < kChoiceGroups - 1 && !passes(s_.group_sum[g], s_.group_count[g]); ++g) {
        sum += s_.group_sum[g];
        count += s_.group_count[g];
      }
      int bin = g * kEach;
      for (; bin < (g + 1) * kEach - 1 && !passes(bins.sum[bin], bins.count[bin]); ++bin) {
        sum += bins.sum[bin];
        count += bins.count[bin];
      }
      s_.before_sum = sum;
      s_.before_count = count;
      s_.bin = bin;
      s_.bin_count = bins.count[bin];
    }
    team_.meet();
  }

  template <class Use>
  __device__ void each_candidate(int begin, int end, const Use& use) {
    team_.each(begin, end, [&](int token) {
      if (row_.candidate(token)) use(token, row_.logits[token]);
    });
  }

  __device__ void list(std::uint64_t key) {
    const std::uint32_t at = team_.next(s_.list_size);
    if (at < kChoiceListed) s_.listed[at] = key;
  }

  __device__ ChoiceElement find(std::uint64_t target, bool by_count) {
    if (team_.first()) {
      s_.before_sum = 0;
      s_.before_count = 0;
      s_.list_size = 0;
      s_.key_least = 0xffffffffu;
      s_.key_most = 0;
    }
    team_.meet();
    find_bin(coarse_, target, by_count);
    // The keys that the bin holds, and the elements themselves where they are few.
    const int bin = s_.bin;
    bool listed = s_.bin_count <= kChoiceListed;
    const int width = row_.ids_per_bin();
    const int begin = row_.by_logit ? 0 : bin * width;
    const int end = row_.by_logit ? row_.vocabulary : min(begin + width, row_.vocabulary);
    std::uint64_t low = static_cast<std::uint64_t>(begin);
    std::uint64_t high = static_cast<std::uint64_t>(end) - 1;
    if (row_.by_logit || listed) {
      each_candidate(begin, end, [&](int token, float logit) {
        if (row_.coarse_bin(token, logit) != bin) return;
        const std::uint64_t key = row_.key(token, logit);
        if (row_.by_logit) {
          team_.least(s_.key_least, static_cast<std::uint32_t>(key >> 32));
          team_.most(s_.key_most, static_cast<std::uint32_t>(key >> 32));
        }
        if (listed) list(key);
      });
      team_.meet();
      if (row_.by_logit) {
        low = static_cast<std::uint64_t>(s_.key_least) << 32;
        high = static_cast<std::uint64_t>(s_.key_most) << 32 | 0xffffffffu;
      }
    }
    while (true) {
      int shift = 0;
      while (((high - low) >> shift) >= kChoiceBins) ++shift;
      team_.each(0, kChoiceBins, [&](int i) {
        s_.fine.sum[i] = 0;
        s_.fine.count[i] = 0;
      });
      team_.meet();
      const auto count = [&](std::uint64_t key, float logit) {
        if (key < low || key > high) return;
        const int at = static_cast<int>((key - low) >> shift);
        team_.add(s_.fine.count[at], 1u);
        const std::uint64_t weight = row_.weight(logit);
        if (weight > 0) team_.add(s_.fine.sum[at], weight);
      };
      if (listed) {
        team_.each(0, static_cast<int>(s_.list_size), [&](int i) {
          const std::uint64_t key = s_.listed[i];
          count(key, row_.logits[ChoiceRow::token_of(key)]);
        });
      } else {
        each_candidate(begin, end, [&](int token, float logit) {
          count(row_.key(token, logit), logit);
        });
      }
      team_.meet();
      find_bin(s_.fine, target, by_count);
      low += static_cast<std::uint64_t>(s_.bin) << shift;
      high = low + (std::uint64_t{1} << shift) - 1;
      if (shift == 0) break;
      if (!listed && s_.bin_count <= kChoiceListed) {
        listed = true;
        each_candidate(begin, end, [&](int token, float logit) {
          const std::uint64_t key = row_.key(token, logit);
          if (key >= low && key <= high) list(key);
        });
        team_.meet();
      }
    }
    const ChoiceElement found{low, s_.before_sum +
                                       row_.weight(row_.logits[ChoiceRow::token_of(low)])};
    team_.meet();
    return found;
  }

  const Team& team_;
  const ChoiceRow& row_;
  const ChoiceBins& coarse_;
  ChoiceScratch& s_;
  std::uint64_t total_ = 0;
  std::uint32_t candidates_ = 0;
};

// The token that `choice` draws of the row, whose coarse histogram is given.
template <class Team>
__device__ int draw_token(const Team& team, const RowChoice& choice, const ChoiceRow& row,
                          const ChoiceBins& coarse, ChoiceScratch& scratch) {
  ChoiceSearch<Team> search(team, row, coarse, scratch);
  std::uint64_t sum = search.total();
  if (row.by_logit) {
    if (choice.top_k > 0 && static_cast<std::uint32_t>(choice.top_k) < search.candidates()) {
      sum = search.at_count(static_cast<std::uint64_t>(choice.top_k) - 1).sum_to_here;
    }
    if (choice.top_p < 1) {
      const auto wanted =
          static_cast<std::uint64_t>(ceil(choice.top_p * static_cast<double>(sum)));
      const std::uint64_t most = wanted < sum ? wanted : sum;
      if (most > 0) sum = search.at_sum(most - 1).sum_to_here;
    }
    if (choice.min_p > 0) {
      if (team.first()) scratch.sum = 0;
      team.meet();
      ChoiceRow likely = row;
      likely.least = choice.min_p;
      std::uint64_t mine = 0;
      team.each(0, row.vocabulary, [&](int token) {
        if (row.candidate(token)) mine += likely.weight(row.logits[token]);
      });
      if (mine > 0) team.add(scratch.sum, mine);
      team.meet();
      // What either cut leaves is a beginning of the order.
      if (scratch.sum < sum) sum = scratch.sum;
    }
  }
  const auto wanted = static_cast<std::uint64_t>(choice.uniform * static_cast<double>(sum));
  return ChoiceRow::token_of(search.at_sum(wanted < sum ? wanted : sum - 1).key);
}

// The normaliser of a row in the order of its logits, at temperature 1, and its first tokens.
template <class Team>
__device__ void read_logprobs(const Team& team, int alternatives, const ChoiceRow& row,
                              const ChoiceBins& coarse, ChoiceScratch& scratch,
                              RowLogprobs& logprobs) {
  ChoiceSearch<Team> search(team, row, coarse, scratch);
  const int wanted = min(min(alternatives, kChoiceAlternatives), row.vocabulary);
  if (team.first()) {
    logprobs.normaliser =
        static_cast<double>(row.largest) + log(static_cast<double>(search.total()) / row.scale);
    logprobs.alternatives = wanted;
  }
  if (wanted == 0) return;
  const std::uint64_t last = search.at_count(static_cast<std::uint64_t>(wanted) - 1).key;
  if (team.first()) scratch.list_size = 0;
  team.meet();
  team.each(0, row.vocabulary, [&](int token) {
    const std::uint64_t key = row.key(token, row.logits[token]);
    if (key <= last) scratch.listed[team.next(scratch.list_size)] = key;
  });
  team.meet();
  // Each key's place is the number of those before it.
  team.each(0, wanted, [&](int i) {
    int place = 0;
    for (int j = 0; j < wanted; ++j) place += scratch.listed[j] < scratch.listed[i] ? 1 : 0;
    logprobs.token[place] = ChoiceRow::token_of(scratch.listed[i]);
    logprobs.token_logit[place] = row.logits[ChoiceRow::token_of(scratch.listed[i])];
  });
}

// The logit of a token after penalty and bias.
__device__ __forceinline__ float changed_logit(const RowChoice& choice, const LogitChange& change,
                                               float logit) {
  float changed = logit;
  if (change.in_output >= 0) {
    double x = logit;
    x = x > 0 ? x / choice.repetition_penalty : x * choice.repetition_penalty;
    if (change.in_output > 0) {
      x -= choice.frequency_penalty * change.in_output + choice.presence_penalty;
    }
    changed = static_cast<float>(x);
  }
  return changed + change.added;
}

}  // namespace replayssm::cuda
