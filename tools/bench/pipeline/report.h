// Reports of the pipeline's benchmark: tables for people, JSON for programs.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_REPORT_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "tools/bench/pipeline/result.h"

namespace tandem {

// (one core's time for the whole batch / devices) / step: a median over the
// rounds. 0 where either was not measured.
double EfficiencyOf(const SideResult& side, int devices);

// A line for each case and peer: times, their ratio and spread, processor time
// of a step on one core (the busiest rank's), settings.
std::string PipelineSpeedTable(const PipelineResults& results);

// A line for each case: efficiency beside the schedule's limit, ours and the
// peer's, and what a microbatch costs beyond theory.
std::string EfficiencyTable(const PipelineResults& results);

// Where our steps' time goes.
std::string StepPartsTable(const PipelineResults& results);

// A line for each model and peer: our best schedule and the peer's best.
std::string BestTable(const PipelineResults& results);

// {"cases", "failures": see AddToJson, and of a case {"efficiency", "limit",
// "peer_efficiency", "ours_cpu_ms", "peer_cpu_ms", "ours_setting",
// "peer_setting"}, "best": [{"name": MODEL, "peer", "ours", "ours_ms", "peers",
// "peer_ms", "ratio"}, ...], "unavailable": [{"name", "schedule", "reason"},
// ...]}. "limit" is the schedule's efficiency at best, with our number of
// microbatches; "peer_efficiency" is 0 for "single". Failures and the last are
// left out if empty.
nlohmann::json PipelineJson(const PipelineResults& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_REPORT_H_
