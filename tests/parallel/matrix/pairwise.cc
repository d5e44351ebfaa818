#include "tests/parallel/matrix/pairwise.h"

#include <set>
#include <tuple>

namespace tandem {
namespace {

using Pair = std::tuple<size_t, int, size_t, int>;

std::vector<Pair> PairsOf(const Combination& combination) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < combination.size(); ++i) {
    for (size_t j = i + 1; j < combination.size(); ++j) {
      pairs.emplace_back(i, combination[i], j, combination[j]);
    }
  }
  return pairs;
}

std::set<Pair> AllPairs(const std::vector<Combination>& combinations) {
  std::set<Pair> pairs;
  for (const Combination& each : combinations) {
    for (const Pair& pair : PairsOf(each)) pairs.insert(pair);
  }
  return pairs;
}

}  // namespace

std::vector<Combination> AllCombinations(
    const std::vector<int>& values,
    const std::function<bool(const Combination&)>& is_valid) {
  std::vector<Combination> all;
  Combination next(values.size(), 0);
  while (true) {
    if (is_valid(next)) all.push_back(next);
    size_t i = values.size();
    while (i > 0 && ++next[i - 1] == values[i - 1]) next[--i] = 0;
    if (i == 0) return all;
  }
}

std::vector<Combination> PairwiseCover(const std::vector<Combination>& all) {
  std::set<Pair> missing = AllPairs(all);
  std::vector<Combination> chosen;
  while (!missing.empty()) {
    const Combination* best = nullptr;
    size_t most = 0;
    for (const Combination& each : all) {
      size_t fresh = 0;
      for (const Pair& pair : PairsOf(each)) fresh += missing.count(pair);
      if (fresh <= most) continue;
      most = fresh;
      best = &each;
    }
    for (const Pair& pair : PairsOf(*best)) missing.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

size_t CountPairs(const std::vector<Combination>& combinations) {
  return AllPairs(combinations).size();
}

}  // namespace tandem
