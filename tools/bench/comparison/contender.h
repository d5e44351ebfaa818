// One side of the pipeline's or the hybrid's benchmark: chooses its setting,
// and is measured.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_CONTENDER_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_CONTENDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/pipeline_case.h"
#include "tools/bench/pipeline_result.h"
#include "tools/bench/side.h"

namespace tandem {

// Of the first steps, by the number of microbatches of all replicas: BatchNorm
// makes them differ. Schedules, cuts, chunks and layouts do not.
using LossesByMicrobatches = std::map<int, std::vector<double>>;

class PipelineContender {
 public:
  // The side's ranks understand the commands of pipeline_server.h, but
  // "stages" and "overlap".
  PipelineContender(std::string name, std::unique_ptr<Side> side,
                    int replicas = 1);
  // One that could not be started.
  PipelineContender(std::string name, const absl::Status& failure);

  const std::string& name() const { return name_; }
  // Once not OK it stays so, and the side is gone.
  const absl::Status& status() const { return status_; }

  // The first steps with this setting.
  absl::StatusOr<std::vector<double>> Losses(const PipelineSetting& setting,
                                             int64_t steps);

  // Has the side use the fastest of the settings. Before one is timed, its
  // losses must be those in `losses`; with `teaches`, the first of each number
  // of microbatches is put there.
  absl::Status Choose(const std::vector<PipelineSetting>& settings,
                      int64_t compared_steps, bool teaches,
                      LossesByMicrobatches& losses);
  // What was tried then, the fastest first.
  const std::vector<PipelineSetting>& ranking() const { return ranking_; }

  // One round of the setting in use.
  absl::Status MeasureStep(int64_t steps);
  absl::Status MeasureAlone(int64_t steps);
  absl::StatusOr<nlohmann::json> StageTimes(int64_t steps);
  // Of our side: what each rank answers.
  absl::StatusOr<std::vector<nlohmann::json>> Overlap(int64_t steps);

  // What was measured since Choose.
  absl::StatusOr<PipelineSideResult> TakeResult();
  // What can be said of a side that failed.
  PipelineSideResult FailedResult() const;

 private:
  absl::StatusOr<std::vector<nlohmann::json>> Ask(const std::string& command);
  absl::StatusOr<double> Try(const PipelineSetting& setting,
                             int64_t compared_steps, bool teaches,
                             LossesByMicrobatches& losses);

  std::string name_;
  std::unique_ptr<Side> side_;
  int replicas_ = 1;
  absl::Status status_;
  std::vector<PipelineSetting> ranking_;
  PipelineSideResult result_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_CONTENDER_H_
