// Reports of what safety costs: a table for people, figures for programs.

#ifndef TANDEM_TOOLS_BENCH_SAFETY_REPORT_H_
#define TANDEM_TOOLS_BENCH_SAFETY_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/safety/run.h"

namespace tandem {

// A line for each means: a step's milliseconds without any, what it costs each
// time, in one of how many steps, and the percents that are of all steps' time,
// with the least and the greatest of the rounds'. All else is medians.
std::string SafetyTable(const std::vector<SafetyResult>& results);

// {"costs": [{"model", "means", "step_ms", "cost_ms", "every", "percent",
// "percent_min", "percent_max"}]}.
nlohmann::json SafetyJson(const std::vector<SafetyResult>& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_SAFETY_REPORT_H_
