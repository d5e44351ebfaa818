// What the pipeline's benchmark says: tables for people, JSON for programs.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_REPORT_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "tools/bench/pipeline_result.h"

namespace tandem {

// A line for each case and peer: microbatches, times, their ratio and spread,
// processor time of a step on one core (the busiest rank's), settings.
std::string PipelineSpeedTable(const PipelineResults& results, int devices);

// A line for each case: efficiency beside the schedule's limit, ours and the
// peer's, and what a microbatch costs beyond theory.
std::string EfficiencyTable(const PipelineResults& results, int devices);

// Where our steps' time goes.
std::string StepPartsTable(const PipelineResults& results);

// A line for each model: our best schedule and the peers' best.
std::string BestTable(const PipelineResults& results);

// {"cases": [{"name", "ours_ms", "peer_ms", "peer", "ratio", "ratio_min",
// "ratio_max", "efficiency", "limit", "peer_efficiency", "ours_cpu_ms",
// "peer_cpu_ms", "ours_setting", "peer_setting"}, ...], "best": [{"name":
// MODEL, "peer", "ours", "ours_ms", "peers", "peer_ms", "ratio"}, ...],
// "failures": [{"name", "peer", "reason"}, ...], "unavailable": [{"name",
// "schedule", "reason"}, ...]}. A case has an entry for each peer that was
// measured. Ratios are peer / ours. "limit" is the schedule's efficiency at
// best, with our number of microbatches.
// "peer_efficiency" is 0 for "single". The last two are left out if empty.
nlohmann::json PipelineJson(const PipelineResults& results, int devices);

// Whether a peer has no figures where it should.
bool HasFailures(const PipelineResults& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_REPORT_H_
