// Answers of a side's ranks, taken together.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_ANSWERS_H_
#define TANDEM_TOOLS_BENCH_PROCESS_ANSWERS_H_

#include <nlohmann/json.hpp>
#include <vector>

namespace tandem {

// The greatest, or the mean, of the numbers that the answers have under `key`;
// at least one answer, and none negative.
double Greatest(const std::vector<nlohmann::json>& answers, const char* key);
double Mean(const std::vector<nlohmann::json>& answers, const char* key);

// Sums of lists, number by number.
std::vector<double> SumOfLists(const std::vector<nlohmann::json>& answers,
                               const char* key);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_ANSWERS_H_
