// A model cut into stages over the devices of one rank, over ranks, or both,
// and kept busy by microbatches (torch.distributed.pipelining).

#ifndef TANDEM_PARALLEL_PIPELINED_H_
#define TANDEM_PARALLEL_PIPELINED_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/communicator.h"
#include "core/layer.h"
#include "core/loss.h"
#include "parallel/flat_buffer.h"
#include "parallel/flat_buffer_list.h"
#include "parallel/grouped_optimizer.h"
#include "parallel/make_optimizer.h"
#include "parallel/pipeline_executor.h"
#include "parallel/pipeline_model.h"
#include "parallel/pipeline_times.h"
#include "parallel/schedule.h"
#include "parallel/strategy.h"
#include "parallel/tied_gradients.h"

namespace tandem {

struct PipelinedOptions {
  Schedule schedule;  // of ranks x devices.size() devices
  Cuts cuts;          // into the schedule's stages
  std::vector<c10::Device> devices = {c10::kCPU};  // this rank's
  // Samples of a microbatch, the last one's fewer where they do not divide; 0:
  // the schedule's microbatches differ by one at most.
  int64_t microbatch_size = 0;
  PipelineOptions pipeline;
  // See core/weight_gradient_sink.h; 1: each microbatch's for itself.
  int weight_gradient_batch = 1;
  // Of initial values, and of what layers draw.
  uint64_t seed = 0;
  OptimizerOptions optimizer = SgdOptions{};         // of optimizer_group's 0
  std::vector<OptimizerOptions> further_optimizers;  // of its groups 1, 2, ...
  // By a parameter's full name; null: all are in group 0.
  std::function<int64_t(const std::string&)> optimizer_group;
  // As ReplicatedOptions'. The norm is that of the whole model.
  double clip_norm = 0;
  double clip_norm_type = 2;
  bool error_if_nonfinite = false;
  double clip_value = 0;
};

// One replica of a model as a pipeline. Each step is one of the schedule, then
// the gradients of tied weights are summed, gradients clipped, and every device
// updates its own parameters; where nothing is tied across stages or clipped by
// norm, as soon as it has done its part. The result is that of the uncut model
// over the same microbatches, but for the order of sums.
//
// Ranks of the pipeline call the same methods with batches of the same sizes.
// The first stage's rank needs their inputs, further ones included, and the
// last one's their targets; others may leave them undefined.
//
// Errors: InvalidArgument for parts that do not fit each other, a batch that
// gives another number of microbatches than the schedule's, a model without
// parameters; those of PipelineExecutor, Communicator and LibTorch. When one
// rank fails the others fail at once, with its reason; some stages may have
// been updated by then, so that a job goes on from its last checkpoint.
//
// Fault points: PipelineExecutor's, and "before_optimizer".
class Pipelined : public Strategy {
 public:
  // `pipe` is the communicator of the pipeline's ranks, null for one; it must
  // outlive the strategy. Collective.
  static absl::StatusOr<std::unique_ptr<Pipelined>> Create(
      const LayerSpecs& specs, const LossFunction& loss,
      const PipelinedOptions& options, Communicator* pipe);

  std::string name() const override { return "pipeline"; }
  absl::StatusOr<Score> TrainStep(const Batch& batch,
                                  double learning_rate) override;
  void ResumeAt(int64_t steps) override { step_ = steps; }
  // The score where the last stage is; elsewhere an empty one.
  absl::StatusOr<Score> Evaluate(const Batch& batch) override;
  absl::StatusOr<Score> Sum(const Score& score) override;
  NamedTensors Parameters() const override;
  NamedTensors Buffers() const override;
  NamedTensors OptimizerState() const override;
  absl::StatusOr<WholeState> GatherState() override;
  // bubble_report.h's, and how many microbatches' activations each device held
  // at most, beside the schedule's bound.
  absl::StatusOr<std::string> DescribeTimes() override;
  absl::Status LoadModelState(const NamedTensors& state) override;
  absl::Status LoadOptimizerState(const NamedTensors& state) override;

  // The outputs of the model for `batch`, [batch.size, ...], on the last
  // stage's device; undefined where that is not here. In evaluation mode.
  absl::StatusOr<at::Tensor> Forward(const Batch& batch);

  const PipelineExecutor& executor() const { return *executor_; }
  // On the threads of this rank's devices, between steps: to bind them to
  // cores, say.
  absl::Status OnDevices(const PipelineExecutor::DeviceWork& work) {
    return executor_->OnDevices(work);
  }

 private:
  Pipelined(const PipelinedOptions& options, Communicator* pipe);

  absl::Status Prepare(const LayerSpecs& specs, const LossFunction& loss);
  // What a device of this rank holds.
  struct Part {
    FlatBuffers own;     // in a group of tied weights: its first member
    FlatBuffers copies;  // the others: counted once in a norm
    std::optional<GroupedOptimizer> optimizer;

    FlatBufferList All() const;
  };

  absl::Status Flatten(const std::vector<TiedGroup>& tied);
  absl::StatusOr<std::vector<Batch>> Microbatches(const Batch& batch) const;
  absl::StatusOr<Score> Step(const Batch& batch, double learning_rate);
  bool updates_at_once() const;
  absl::Status Update(double learning_rate);
  absl::Status UpdateDevice(int device, std::optional<double> norm,
                            double learning_rate);
  absl::StatusOr<double> NormOfAll();
  absl::StatusOr<Inference> Infer(const Batch& batch, bool keeps_outputs);
  FlatBufferList All() const;
  void Measure(const Batch& batch);

  PipelinedOptions options_;
  Communicator* pipe_;
  std::unique_ptr<PipelineExecutor> executor_;
  std::map<int, Part> parts_;  // by schedule device
  std::vector<std::pair<std::string, std::string>> copies_of_;  // copy, own
  std::unique_ptr<TiedGradients> tied_;
  PipelineTimes times_;
  int layers_ = 0;
  int64_t batch_size_ = 0;  // of the last step
  int64_t step_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINED_H_
