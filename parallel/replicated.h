// Whole replicas of the model, one device per rank, each fed its own samples
// (distributed data parallel); with one rank, the single device.

#ifndef TANDEM_PARALLEL_REPLICATED_H_
#define TANDEM_PARALLEL_REPLICATED_H_

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/batch.h"
#include "core/communicator.h"
#include "core/layer.h"
#include "core/loss.h"
#include "core/named_tensors.h"
#include "parallel/flat_buffer.h"
#include "parallel/make_optimizer.h"
#include "parallel/strategy.h"

namespace tandem {

struct ReplicatedOptions {
  OptimizerOptions optimizer = SgdOptions{};
  double clip_norm = 0;   // see ClipGradientNorm; 0: off
  double clip_value = 0;  // see ClipGradientValue; 0: off. Before the norm
  c10::Device device = c10::kCPU;
};

// As PyTorch's DistributedDataParallel with find_unused_parameters and
// broadcast_buffers:
//   At the start every rank takes rank 0's parameters and buffers.
//   Each step averages the ranks' gradients: the mean of means, equal to the
//   gradient of the whole batch where all ranks have as many predictions. One
//   all-reduce of the flat gradient buffer, after backward; a small one before
//   it sums the scores and tells which parameters were used anywhere. One that
//   was not is left alone.
//   Buffers (BatchNorm's running statistics) are rank 0's after each step.
// After every step parameters, buffers and optimizer state hold the same bits
// on all ranks. A loss that is NaN or infinite shows in the score; the step is
// done all the same.
//
// Errors: InvalidArgument when ranks have different models, when nothing is to
// be trained, when a batch is empty or does not fit the model; Internal when a
// parameter or its gradient was replaced; those of Communicator and of
// LibTorch. A rank that fails issues no more collectives: the others fail by
// timeout or broken connection.
class Replicated : public Strategy {
 public:
  // Moves `layers` to the device. `data` is the communicator of all replicas;
  // it must outlive the strategy. Collective.
  static absl::StatusOr<std::unique_ptr<Replicated>> Create(
      LayerList layers, LossFunction loss, const ReplicatedOptions& options,
      Communicator& data);

  // "single" with one rank, else "ddp".
  std::string name() const override;
  absl::StatusOr<Score> TrainStep(const Batch& batch,
                                  double learning_rate) override;
  absl::StatusOr<Score> Evaluate(const Batch& batch) override;
  absl::StatusOr<Score> Sum(const Score& score) override;
  NamedTensors Parameters() const override { return parameters_; }
  NamedTensors Buffers() const override { return buffers_; }
  NamedTensors OptimizerState() const override;
  absl::Status LoadModelState(const NamedTensors& state) override;
  absl::Status LoadOptimizerState(const NamedTensors& state) override;

 private:
  Replicated(LayerList layers, LossFunction loss,
             const ReplicatedOptions& options, Communicator& data);

  absl::Status Prepare();
  absl::Status CopyFromRank0();
  LossResult Loss(const Batch& batch) const;
  Score ForwardBackward(const Batch& batch);
  absl::Status SumScoreAndUse(Score* score);
  absl::Status AverageGradients();
  void Update(double learning_rate);

  LayerList layers_;
  LossFunction loss_;
  ReplicatedOptions options_;
  Communicator& data_;
  NamedTensors parameters_;
  NamedTensors buffers_;
  FlatBuffers flat_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPLICATED_H_
