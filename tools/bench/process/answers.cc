#include "tools/bench/process/answers.h"

#include <algorithm>

namespace tandem {

using nlohmann::json;

double Greatest(const std::vector<json>& answers, const char* key) {
  double greatest = 0;
  for (const json& each : answers) {
    greatest = std::max(greatest, each.at(key).get<double>());
  }
  return greatest;
}

double Mean(const std::vector<json>& answers, const char* key) {
  double sum = 0;
  for (const json& each : answers) sum += each.at(key).get<double>();
  return sum / static_cast<double>(answers.size());
}

std::vector<double> SumOfLists(const std::vector<json>& answers,
                               const char* key) {
  std::vector<double> sums;
  for (const json& each : answers) {
    const auto values = each.at(key).get<std::vector<double>>();
    sums.resize(std::max(sums.size(), values.size()));
    for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
  }
  return sums;
}

}  // namespace tandem
