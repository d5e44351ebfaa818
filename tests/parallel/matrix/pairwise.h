// A few combinations of settings, in which every two values of two settings
// meet (pairwise cover).

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_PAIRWISE_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_PAIRWISE_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace tandem {

// For each setting, which of its values: from 0.
using Combination = std::vector<int>;

// All combinations of settings that have so many values each, which `is_valid`
// takes, in lexicographic order.
std::vector<Combination> AllCombinations(
    const std::vector<int>& values,
    const std::function<bool(const Combination&)>& is_valid);

// Some of `all`: each pair of values of two settings that is in one of `all` is
// in one of these. Greedy, and always the same.
std::vector<Combination> PairwiseCover(const std::vector<Combination>& all);

// How many such pairs there are.
size_t CountPairs(const std::vector<Combination>& combinations);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_PAIRWISE_H_
