// Executor fixture: a small model in pipelines of simulated and other devices.

#ifndef TANDEM_TESTS_PARALLEL_PIPELINE_EXECUTOR_FIXTURE_H_
#define TANDEM_TESTS_PARALLEL_PIPELINE_EXECUTOR_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "core/testing/device_types.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/options.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

class ExecutorFixture : public DeviceTypeTest {
 protected:
  static constexpr uint64_t kSeed = 3;  // of the layers of Make

  static LayerSpecs Specs();
  // A batch of `size` samples for it, in that many microbatches.
  static std::vector<Batch> BatchesOf(int64_t size, int parts, int seed);

  // Of all stages, on as many devices as the schedule has.
  static absl::StatusOr<std::unique_ptr<PipelineExecutor>> Make(
      const Schedule& schedule, const LayerSpecs& specs,
      const PipelineOptions& options = {});
};

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_PIPELINE_EXECUTOR_FIXTURE_H_
