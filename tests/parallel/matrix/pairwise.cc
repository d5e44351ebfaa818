#include "tests/parallel/matrix/pairwise.h"

#include <algorithm>

namespace tandem {
namespace {

// Pairs of values of two settings, by number.
class PairNumbers {
 public:
  explicit PairNumbers(const std::vector<Combination>& all) {
    for (const Combination& each : all) {
      sizes_.resize(each.size(), 0);
      for (size_t i = 0; i < each.size(); ++i) {
        sizes_[i] = std::max(sizes_[i], each[i] + 1);
      }
    }
  }

  // The pairs that a combination has.
  std::vector<size_t> Of(const Combination& combination) const {
    std::vector<size_t> numbers;
    int first = 0;  // of these two settings
    for (size_t i = 0; i < sizes_.size(); ++i) {
      for (size_t j = i + 1; j < sizes_.size(); ++j) {
        numbers.push_back(static_cast<size_t>(
            first + combination[i] * sizes_[j] + combination[j]));
        first += sizes_[i] * sizes_[j];
      }
    }
    return numbers;
  }

  size_t count() const {
    int count = 0;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      for (size_t j = i + 1; j < sizes_.size(); ++j) {
        count += sizes_[i] * sizes_[j];
      }
    }
    return static_cast<size_t>(count);
  }

 private:
  std::vector<int> sizes_;  // how many values each setting has
};

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
  const PairNumbers numbers(all);
  std::vector<std::vector<size_t>> pairs;
  std::vector<char> missing(numbers.count(), 0);
  for (const Combination& each : all) {
    pairs.push_back(numbers.Of(each));
    for (const size_t pair : pairs.back()) missing[pair] = 1;
  }
  std::vector<Combination> chosen;
  while (true) {
    size_t best = 0;
    int most = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      int fresh = 0;
      for (const size_t pair : pairs[i]) fresh += missing[pair];
      if (fresh <= most) continue;
      most = fresh;
      best = i;
    }
    if (most == 0) return chosen;
    for (const size_t pair : pairs[best]) missing[pair] = 0;
    chosen.push_back(all[best]);
  }
}

size_t CountPairs(const std::vector<Combination>& combinations) {
  const PairNumbers numbers(combinations);
  std::vector<char> found(numbers.count(), 0);
  for (const Combination& each : combinations) {
    for (const size_t pair : numbers.Of(each)) found[pair] = 1;
  }
  return static_cast<size_t>(std::count(found.begin(), found.end(), 1));
}

}  // namespace tandem
