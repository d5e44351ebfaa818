// For tests: a model of small layers of one's own, as a pipeline over ranks or
// over the devices of one process, and in one piece.

#ifndef TANDEM_TESTS_PARALLEL_PIPELINE_RANK_PIPELINE_H_
#define TANDEM_TESTS_PARALLEL_PIPELINE_RANK_PIPELINE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "core/testing/device_types.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/options.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

using LayerCompute = std::function<at::Tensor(
    const at::Tensor& weight, const at::Tensor& x, Skips& skips)>;

// A layer with one parameter, "weight", whose values are a function of seed and
// name.
LayerSpec WithWeight(const std::string& name, std::vector<int64_t> shape,
                     LayerLinks links, const LayerCompute& compute,
                     bool is_trained = true);

// tanh(x weight^T)
LayerSpec TanhLinear(const std::string& name, int64_t from, int64_t to);

struct RankPipelineCase {
  std::string schedule = "1f1b";
  int ranks = 2;  // one device each; 1: the `devices` of a process
  int microbatches = 4;
  std::string backend = "shm";
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever;
  std::vector<c10::Device> devices = {};

  int stages() const;
};

// Cuts the model uniformly, and calls `fn` on each rank, a thread.
absl::Status RunRankPipeline(
    const LayerSpecs& specs, const RankPipelineCase& each,
    const std::function<absl::Status(PipelineExecutor& executor, int rank)>&
        fn);

// What steps come to: the sum of the losses of each, and then the gradients'
// sums by name.
struct StepsOutcome {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> gradients;
};

// Steps without an update: on those with `trains`, gradients are added up;
// others are forward alone.
struct StepsStep {
  std::vector<Batch> microbatches;
  bool trains = true;
};
absl::StatusOr<StepsOutcome> StepsInOnePiece(
    const LayerSpecs& specs, const std::vector<StepsStep>& steps);
absl::StatusOr<StepsOutcome> StepsInStages(const LayerSpecs& specs,
                                           const std::vector<StepsStep>& steps,
                                           const RankPipelineCase& each);

// Same losses and gradients: of the same bits, or for another order of sums
// nearly.
void ExpectSame(const absl::StatusOr<StepsOutcome>& found,
                const absl::StatusOr<StepsOutcome>& expected, bool same_bits);

// A small model in pipelines of simulated and other devices.
class ExecutorFixture : public DeviceTypeTest {
 protected:
  static constexpr uint64_t kSeed = 3;  // of the layers of Make

  static LayerSpecs Specs();
  // A batch of `size` samples for it, in that many microbatches.
  static std::vector<Batch> BatchesOf(int64_t size, int parts, int seed);

  // An executor of all stages, on as many devices as the schedule has.
  static absl::StatusOr<std::unique_ptr<PipelineExecutor>> Make(
      const Schedule& schedule, const LayerSpecs& specs,
      const PipelineOptions& options = {});
};

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_PIPELINE_RANK_PIPELINE_H_
