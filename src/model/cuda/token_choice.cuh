// The token of a row of logits on the GPU, in the steps and the order of engine/sampler.h. All sums
// are of integers, so that they have no order: a weight is exp((x - largest) / temperature) in
// units of 2^-weight_bits(vocabulary). Every cut and the draw itself ask for the first element, in
// the row's order, at which a count or a sum of weights exceeds a target: a coarse histogram of the
// whole row gives the bin that holds it, finer ones its part of the bin, and the last few elements
// are ranked.
//
// The order is that of ids, or, where top-k or top-p cut, that of descending logits and among equal
// ones of ids. Of a row by logits, the elements of all bins that a cut can leave are listed first,
// where they are few. `Team` is a block's threads: on a GPU they share the work of each() and
// each_logit(), and meet() is their barrier; on the CPU (tests/unit/token_choice_test.cpp) there is
// one.
#pragma once

#include <cfloat>
#include <cstdint>

#include "model/cuda/token_choice.h"

namespace replayssm::cuda {

inline constexpr int kChoicePowers = 64;

// Bits of the largest id.
__device__ __forceinline__ int id_bits(int vocabulary) {
  int bits = 0;
  while ((1 << bits) < vocabulary) ++bits;
  return bits;
}

// Fractional bits of a weight: the sum of all of a vocabulary fits 62 bits, one weight a double.
__device__ __forceinline__ int weight_bits(int vocabulary) {
  return min(62 - id_bits(vocabulary), 50);
}

__device__ __forceinline__ double double_of(std::uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}
__device__ __forceinline__ std::uint64_t bits_of(double x) {
  return static_cast<std::uint64_t>(__double_as_longlong(x));
}

// What is chosen from.
struct ChoiceRow {
  const float* logits = nullptr;        // [vocabulary]
  const std::uint32_t* mask = nullptr;  // null: every token
  const double* powers = nullptr;       // [kChoicePowers] 2^(i / kChoicePowers)
  int vocabulary = 0;
  int token_bits = 0;    // id_bits()
  int fraction = 0;      // weight_bits()
  float largest = 0;     // of the candidates
  double exponents = 0;  // from a distance of logits to kChoicePowers times the exponent of 2
  double least = 0;      // weights below it, in units, are none
  bool by_logit = false;

  __device__ __forceinline__ ChoiceRow(const float* row, int size, float most, double temperature,
                                       const double* table)
      : logits(row),
        powers(table),
        vocabulary(size),
        token_bits(id_bits(size)),
        fraction(weight_bits(size)),
        largest(most),
        exponents(kChoicePowers * 1.4426950408889634 / temperature) {
    if (exponents > 1e300) exponents = 1e300;  // times a distance of 0 it is no number otherwise
  }

  __device__ __forceinline__ double unit() const {
    return double_of(static_cast<std::uint64_t>(1023 + fraction) << 52);
  }
  __device__ __forceinline__ bool candidate(int token) const {
    return mask == nullptr || ((mask[token / 32] >> (token % 32)) & 1u) != 0;
  }
  // To within 2^-46 of itself and half a unit.
  __device__ __forceinline__ std::uint64_t weight(float logit) const {
    const double y =
        (static_cast<double>(logit) - static_cast<double>(largest)) * exponents;  // at most 0
    if (!(y > -kChoicePowers * (fraction + 1.0))) return 0;  // less than half a unit
    constexpr double kRounds = 0x1.8p52;  // added, it leaves the nearest integer in the low bits
    const double shifted = y + kRounds;
    const int power = static_cast<int>(static_cast<std::uint32_t>(bits_of(shifted)));
    const double z = (y - (shifted - kRounds)) * (0.6931471805599453 / kChoicePowers);
    double series = fma(z, 1.0 / 120, 1.0 / 24);
    series = fma(z, series, 1.0 / 6);
    series = fma(z, series, 0.5);
    series = fma(z, series, 1.0);
    series = fma(z, series, 1.0);
    const int exponent = (power >> 6) + fraction;
    const double scaled = powers[power & (kChoicePowers - 1)] * series *
                          double_of(static_cast<std::uint64_t>(1023 + exponent) << 52);
    if (scaled < least) return 0;
    return bits_of(scaled + 0x1p52) & ((std::uint64_t{1} << 52) - 1);
  }
  __device__ __forceinline__ int coarse_bin(int token, float logit) const {
    if (!by_logit) return token / ids_per_bin();
    return static_cast<int>(fminf((largest - logit) * kPerLogit, kChoiceBins - 1.0f));
  }
  __device__ __forceinline__ int ids_per_bin() const {
    return ((vocabulary + kChoiceBins - 1) / kChoiceBins + 31) / 32 * 32;  // whole warps
  }
  // Ascending in the row's order, and no two alike.
  __device__ __forceinline__ std::uint64_t key(int token, float logit) const {
    const auto id = static_cast<std::uint64_t>(token);
    if (!by_logit) return id;
    const std::uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 is 0
    const std::uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return static_cast<std::uint64_t>(~ascending) << token_bits | id;
  }
  __device__ __forceinline__ int token_of(std::uint64_t key) const {
    return static_cast<int>(key & ((std::uint64_t{1} << token_bits) - 1));
  }
  // Of a row by logits: none of a bin is below, none above. What coarse_bin() rounds is far less
  // than the slack.
  __device__ __forceinline__ float least_of(int bin) const {
    const double x = edge(bin + 1) - slack(bin);
    return bin == kChoiceBins - 1 || x < -FLT_MAX ? -FLT_MAX : static_cast<float>(x);
  }
  __device__ __forceinline__ float most_of(int bin) const {
    const double x = edge(bin) + slack(bin);
    return x > FLT_MAX ? FLT_MAX : static_cast<float>(x);
  }

 private:
  __device__ __forceinline__ double edge(int bin) const {
    return static_cast<double>(largest) - bin / static_cast<double>(kPerLogit);
  }
  __device__ __forceinline__ double slack(int bin) const {
    return 0x1p-20 *
           (fabs(static_cast<double>(largest)) + (bin + 1) / static_cast<double>(kPerLogit));
  }
  static constexpr float kPerLogit = 64.0f;  // coarse bins
};

template <class Team>
__device__ __forceinline__ void make_powers(const Team& team, double* powers) {
  team.each(0, kChoicePowers, [&](int i) { powers[i] = exp2(i * (1.0 / kChoicePowers)); });
}

// Adds the candidates of [begin, end) to a histogram of coarse bins: how many, unless they go by
// ids, and, with `sums`, their weights.
template <class Team>
__device__ __forceinline__ void count_candidates(const Team& team, const ChoiceRow& row, int begin,
                                                 int end, bool sums, ChoiceBins& bins) {
  team.each_logit(row.logits, begin, end, [&](int token, float logit) {
    if (!row.candidate(token)) return;
    const int bin = row.coarse_bin(token, logit);
    if (row.by_logit) team.add(bins.count[bin], 1u);
    const std::uint64_t weight = sums ? row.weight(logit) : 0;
    if (weight > 0) team.add(bins.sum[bin], weight);
  });
}

inline constexpr int kChoiceGroups = 64;               // of bins, summed up by a thread each
inline constexpr int kChoiceRanked = kChoiceIdsOfBin;  // elements that are ranked one by one

// Where in a histogram a target is passed.
struct ChoicePlace {
  int bin = 0;
  std::uint32_t count = 0;         // of the bin
  std::uint64_t before_sum = 0;    // of all before the bin
  std::uint32_t before_count = 0;  // likewise
};

// A block's memory for histograms.
struct ChoiceSums {
  std::uint64_t group_sum[kChoiceGroups];
  std::uint32_t group_count[kChoiceGroups];
  ChoicePlace place;
};

template <class Team>
__device__ void sum_groups(const Team& team, const ChoiceBins& bins, ChoiceSums& sums) {
  constexpr int kEach = kChoiceBins / kChoiceGroups;
  team.each(0, kChoiceGroups, [&](int g) {
    std::uint64_t sum = 0;
    std::uint32_t count = 0;
    for (int i = 0; i < kEach; ++i) {
      const int bin = g * kEach + (i + g) % kEach;  // threads begin in different banks
      sum += bins.sum[bin];
      count += bins.count[bin];
    }
    sums.group_sum[g] = sum;
    sums.group_count[g] = count;
  });
  team.meet();
}

// The first bin at which a count or a sum exceeds `target`, the last one if none does; what lies
// before it is added to what `from` says. After sum_groups().
template <class Team>
__device__ ChoicePlace place_of(const Team& team, const ChoiceBins& bins, ChoiceSums& sums,
                                std::uint64_t target, bool by_count, const ChoicePlace& from = {}) {
  if (team.first()) {
    constexpr int kEach = kChoiceBins / kChoiceGroups;
    ChoicePlace at = from;
    const auto passes = [&](std::uint64_t more_sum, std::uint32_t more_count) {
      return (by_count ? static_cast<std::uint64_t>(at.before_count) + more_count
                       : at.before_sum + more_sum) > target;
    };
    int g = 0;
    for (; g < kChoiceGroups - 1 && !passes(sums.group_sum[g], sums.group_count[g]); ++g) {
      at.before_sum += sums.group_sum[g];
      at.before_count += sums.group_count[g];
    }
    at.bin = g * kEach;
    for (; at.bin < (g + 1) * kEach - 1 && !passes(bins.sum[at.bin], bins.count[at.bin]);
         ++at.bin) {
      at.before_sum += bins.sum[at.bin];
      at.before_count += bins.count[at.bin];
    }
    at.count = bins.count[at.bin];
    sums.place = at;
  }
  team.meet();
  const ChoicePlace at = sums.place;
  team.meet();
  return at;
}

// What a cut can leave: the element at which it is made is at this count or sum.
struct ChoiceGoal {
  std::uint64_t target = 0;
  bool by_count = true;
};

// `total`: of all weights, where there is no top-k.
__device__ __forceinline__ ChoiceGoal goal_of(const RowChoice& choice, std::uint64_t total) {
  if (choice.top_k > 0) return {static_cast<std::uint64_t>(choice.top_k) - 1, true};
  const auto wanted = static_cast<std::uint64_t>(ceil(choice.top_p * static_cast<double>(total)));
  const std::uint64_t most = wanted < total ? wanted : total;
  return {most > 0 ? most - 1 : 0, false};
}

__device__ __forceinline__ std::uint64_t sum_of(const ChoiceSums& sums) {
  std::uint64_t sum = 0;
  for (int g = 0; g < kChoiceGroups; ++g) sum += sums.group_sum[g];
  return sum;
}

// Of a row by logits: the part of its list that lies in [begin, end). `last`: where its goal is.
template <class Team>
__device__ void list_candidates(const Team& team, const ChoiceRow& row, const ChoicePlace& last,
                                int begin, int end, ChoiceList& list) {
  if (last.count > kChoiceListed) return;
  const bool all = last.before_count + last.count <= kChoiceListed;
  const int first_bin = all ? 0 : last.bin;
  if (team.first()) {  // every block the same
    list.first_bin = first_bin;
    list.last_bin = last.bin;
  }
  const float least = row.least_of(last.bin);
  team.each_logit(row.logits, begin, end, [&](int token, float logit) {
    if (logit < least || !row.candidate(token)) return;
    const int bin = row.coarse_bin(token, logit);
    if (bin >= first_bin && bin <= last.bin) list.token[team.next(list.count)] = token;
  });
}

// One block's memory.
struct ChoiceScratch {
  ChoiceBins coarse;
  ChoiceBins fine;
  std::uint64_t key[kChoiceRanked];
  std::uint64_t weight[kChoiceRanked];
  double powers[kChoicePowers];
  ChoiceSums coarse_sums;
  ChoiceSums fine_sums;
  std::uint32_t ranked;
  std::uint64_t found_key;
  std::uint64_t found_sum;
  std::uint64_t sum;
};

// An element, and the sum of the weights up to it, its own included.
struct ChoiceElement {
  std::uint64_t key = 0;
  std::uint64_t sum = 0;
};

// Precondition: scratch.coarse is the row's histogram, and scratch.powers are made; `list` has what
// list_candidates() gave.
template <class Team>
class ChoiceSearch {
 public:
  __device__ ChoiceSearch(const Team& team, const ChoiceRow& row, const ChoiceList& list,
                          ChoiceScratch& scratch)
      : team_(team), row_(row), list_(list), s_(scratch) {
    sum_groups(team_, s_.coarse, s_.coarse_sums);
  }

  __device__ std::uint64_t total() const { return sum_of(s_.coarse_sums); }

  // The first element at which more than `target` have come, or the sum of weights exceeds it.
  // Precondition: there is one.
  __device__ ChoiceElement at_count(std::uint64_t target) { return find(target, true); }
  __device__ ChoiceElement at_sum(std::uint64_t target) { return find(target, false); }

  // Adds the weights of the elements up to a goal's bin to the histogram, where they have not been
  // counted.
  __device__ void add_weights(const ChoiceGoal& goal) {
    const ChoicePlace last = place_of(team_, s_.coarse, s_.coarse_sums, goal.target, goal.by_count);
    each_to_goal([&](int token, float logit) {
      const int bin = row_.coarse_bin(token, logit);
      if (bin > last.bin) return;
      const std::uint64_t weight = row_.weight(logit);
      if (weight > 0) team_.add(s_.coarse.sum[bin], weight);
    });
    team_.meet();
    sum_groups(team_, s_.coarse, s_.coarse_sums);
  }

  // The weights of all that have at least `least`.
  __device__ std::uint64_t sum_from(double least) {
    if (team_.first()) s_.sum = 0;
    team_.meet();
    ChoiceRow likely = row_;
    likely.least = least * row_.unit();
    std::uint64_t mine = 0;
    each_to_goal([&](int, float logit) { mine += likely.weight(logit); });
    if (mine > 0) team_.add(s_.sum, mine);
    team_.meet();
    return s_.sum;
  }

  // Of all elements up to the list's goal, and maybe others behind it.
  template <class Use>
  __device__ void each_to_goal(const Use& use) {
    each_element(list_.count > 0 && list_.first_bin == 0, 0, row_.vocabulary, use);
  }

 private:
  template <class Use>
  __device__ void each_element(bool listed, int begin, int end, const Use& use) {
    if (listed) {
      team_.each(0, static_cast<int>(list_.count),
                 [&](int i) { use(list_.token[i], row_.logits[list_.token[i]]); });
    } else {
      team_.each_logit(row_.logits, begin, end, [&](int token, float logit) {
        if (row_.candidate(token)) use(token, logit);
      });
    }
  }

  __device__ ChoiceElement find(std::uint64_t target, bool by_count) {
    ChoicePlace at = place_of(team_, s_.coarse, s_.coarse_sums, target, by_count);
    const int bin = at.bin;
    const int width = row_.ids_per_bin();
    const int begin = row_.by_logit ? 0 : bin * width;
    const int end = row_.by_logit ? row_.vocabulary : min(begin + width, row_.vocabulary);
    const float least = row_.by_logit ? row_.least_of(bin) : -FLT_MAX;
    const float most = row_.by_logit ? row_.most_of(bin) : FLT_MAX;
    std::uint64_t low = row_.by_logit ? row_.key(0, most) : static_cast<std::uint64_t>(begin);
    std::uint64_t high = row_.by_logit ? row_.key((1 << row_.token_bits) - 1, least)
                                       : static_cast<std::uint64_t>(end) - 1;
    const bool listed = list_.count > 0 && bin >= list_.first_bin && bin <= list_.last_bin;
    const auto each_left = [&](const auto& use) {
      each_element(listed, begin, end, [&](int token, float logit) {
        if (logit < least || logit > most || row_.coarse_bin(token, logit) != bin) return;
        const std::uint64_t key = row_.key(token, logit);
        if (key >= low && key <= high) use(key, logit);
      });
    };
    while (at.count > kChoiceRanked) {
      int shift = 0;
      while (((high - low) >> shift) >= kChoiceBins) ++shift;
      team_.each(0, kChoiceBins, [&](int i) {
        s_.fine.sum[i] = 0;
        s_.fine.count[i] = 0;
      });
      team_.meet();
      each_left([&](std::uint64_t key, float logit) {
        const int part = static_cast<int>((key - low) >> shift);
        team_.add(s_.fine.count[part], 1u);
        const std::uint64_t weight = row_.weight(logit);
        if (weight > 0) team_.add(s_.fine.sum[part], weight);
      });
      team_.meet();
      sum_groups(team_, s_.fine, s_.fine_sums);
      at = place_of(team_, s_.fine, s_.fine_sums, target, by_count, at);
      low += static_cast<std::uint64_t>(at.bin) << shift;
      high = low + (std::uint64_t{1} << shift) - 1;
    }
    if (team_.first()) s_.ranked = 0;
    team_.meet();
    each_left([&](std::uint64_t key, float logit) {
      const std::uint32_t place = team_.next(s_.ranked);
      s_.key[place] = key;
      s_.weight[place] = row_.weight(logit);
    });
    team_.meet();
    const int ranked = static_cast<int>(s_.ranked);
    team_.each(0, ranked, [&](int i) {
      std::uint64_t sum = at.before_sum;
      std::uint64_t count = at.before_count;
      for (int j = 0; j < ranked; ++j) {
        if (s_.key[j] > s_.key[i]) continue;
        sum += s_.weight[j];
        ++count;
      }
      const bool passes = by_count ? count > target : sum > target;
      const bool before = by_count ? count > target + 1 : sum - s_.weight[i] > target;
      if (passes && !before) {
        s_.found_key = s_.key[i];
        s_.found_sum = sum;
      }
    });
    team_.meet();
    const ChoiceElement found{s_.found_key, s_.found_sum};
    team_.meet();
    return found;
  }

  const Team& team_;
  const ChoiceRow& row_;
  const ChoiceList& list_;
  ChoiceScratch& s_;
};

// The token that `choice` draws of the row.
template <class Team>
__device__ int draw_token(const Team& team, const RowChoice& choice, const ChoiceRow& row,
                          const ChoiceList& list, ChoiceScratch& scratch) {
  ChoiceSearch<Team> search(team, row, list, scratch);
  std::uint64_t sum = 0;
  if (choice.top_k > 0) {
    const ChoiceGoal goal = goal_of(choice, 0);
    search.add_weights(goal);
    // Counted, the sums before the element's bin are there, too.
    sum = search.at_count(goal.target).sum;
  } else {
    sum = search.total();
  }
  if (row.by_logit) {
    if (choice.top_p < 1) {
      RowChoice by_sum = choice;
      by_sum.top_k = 0;
      sum = search.at_sum(goal_of(by_sum, sum).target).sum;
    }
    if (choice.min_p > 0) {
      // What either cut leaves is a beginning of the order.
      const std::uint64_t likely = search.sum_from(choice.min_p);
      if (likely < sum) sum = likely;
    }
  }
  const auto wanted = static_cast<std::uint64_t>(choice.uniform * static_cast<double>(sum));
  return row.token_of(search.at_sum(wanted < sum ? wanted : sum - 1).key);
}

// The normaliser of a row in the order of its logits, at temperature 1, and its first tokens.
template <class Team>
__device__ void read_logprobs(const Team& team, int alternatives, const ChoiceRow& row,
                              const ChoiceList& list, ChoiceScratch& scratch,
                              RowLogprobs& logprobs) {
  ChoiceSearch<Team> search(team, row, list, scratch);
  const int wanted = min(min(alternatives, kChoiceAlternatives), row.vocabulary);
  if (team.first()) {
    logprobs.normaliser =
        static_cast<double>(row.largest) + log(static_cast<double>(search.total()) / row.unit());
    logprobs.alternatives = wanted;
  }
  if (wanted == 0) return;
  const std::uint64_t last = search.at_count(static_cast<std::uint64_t>(wanted) - 1).key;
  if (team.first()) scratch.ranked = 0;
  team.meet();
  search.each_to_goal([&](int token, float logit) {
    const std::uint64_t key = row.key(token, logit);
    if (key <= last) scratch.key[team.next(scratch.ranked)] = key;
  });
  team.meet();
  // Each key's place is the number of those before it.
  team.each(0, wanted, [&](int i) {
    int place = 0;
    for (int j = 0; j < wanted; ++j) place += scratch.key[j] < scratch.key[i] ? 1 : 0;
    logprobs.token[place] = row.token_of(scratch.key[i]);
    logprobs.token_logit[place] = row.logits[row.token_of(scratch.key[i])];
  });
  team.meet();
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
