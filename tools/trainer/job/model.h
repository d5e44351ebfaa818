// Model of a job: its layers, none of which is made yet, its loss, and its
// FLOPs.

#ifndef TANDEM_TOOLS_TRAINER_JOB_MODEL_H_
#define TANDEM_TOOLS_TRAINER_JOB_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/row_parts.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "datasets/dataset.h"
#include "models/lora/merged_weights.h"
#include "parallel/optim/update_options.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {

class TensorParallelScope;

// For samples like those of `data`, with adapters where --lora_rank asks for
// them. InvalidArgument where the model does not take either. `transformer`:
// that of the job, which counts where a folder says what it is; else --model
// does.
absl::StatusOr<LayerSpecs> JobLayers(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data);

// Which parameters of those layers are rows of one weight (--vocab_parallel).
absl::StatusOr<RowParts> ModelRowParts(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data);

// What checkpoints say of the adapters; nothing: there are none.
absl::StatusOr<std::optional<LoraRecord>> JobAdapters(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data);

// `transformer`: as JobLayers takes it; its head's vocabulary may be divided
// (--tensor).
LossFunction JobLoss(const TrainOptions& options,
                     const std::optional<Transformer>& transformer);

// InvalidArgument where ranks are to share layers (--tensor) of a model that is
// known not to be divided. A folder's, and a program's own, is known later.
absl::Status CheckCanBeShared(const TrainOptions& options);

// What a job trains, and how: its layers, none of which is made yet.
struct JobModel {
  LayerSpecs layers;
  LossFunction loss;
  UpdateOptions optimizers;  // MakeOptimizerGroups'
};

// While it lives, layers that the calling thread makes are as the first of the
// ranks that share them has them (--tensor), and losses are of such layers; but
// nothing is sent (core/model/axis/loopback_axis_group.h). For what plans and
// measures.
class PlannedLayersScope {
 public:
  explicit PlannedLayersScope(const PipelineSettings& settings);
  ~PlannedLayersScope();

 private:
  const std::unique_ptr<const TensorParallelScope> scope_;
};

// FLOPs of a job's training: what its model costs, and what its devices could
// do, from which its throughput follows in FLOP/s and as MFU (model FLOPs
// utilization; PaLM, 2204.02311, appendix B).
struct JobFlops {
  double forward = 0;      // of one sample (core/meta/flops.h); 0: not known
  double trained = 0;      // those of it whose weights are not frozen
  std::string unknown;     // why not
  double peak_of_all = 0;  // FLOP/s of all devices; 0: not known

  // FLOPs of a training step: backward has twice the forward's products, by the
  // inputs and by the weights that are trained. What activation checkpointing
  // computes a second time is not the model's.
  double per_sample() const { return 2 * forward + trained; }
  // 0 for what is not known. `samples_per_s`: of all replicas.
  double per_s(double samples_per_s) const {
    return samples_per_s * per_sample();
  }
  double utilization(double samples_per_s) const {
    return peak_of_all > 0 ? per_s(samples_per_s) / peak_of_all : 0;
  }
};

// FLOPs of the model that JobLayers gives for `data`, with all its logits. A
// registered model, whose code may not know tensors without values, is counted
// where --peak_tflops asks for it alone.
JobFlops ModelFlops(const TrainOptions& options,
                    const std::optional<Transformer>& transformer,
                    const Dataset& data, int devices);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_MODEL_H_
