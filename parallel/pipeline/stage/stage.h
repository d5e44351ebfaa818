// Pipeline stage: some layers on one device, and what their microbatches keep
// between forward and backward.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/loss/deferred_score.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer.h"
#include "core/model/layer_flow.h"
#include "core/model/statistics_records.h"
#include "core/model/weight_gradient_sink.h"
#include "core/random/sample_scope.h"
#include "parallel/balance/cut.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/stage/kept_microbatch.h"
#include "parallel/pipeline/stage/stage_options.h"

namespace tandem {

// Used by one thread at a time, but for running_layer().
//
// Layers that compute a second time must give the same. What they draw from
// LibTorch's default generators is a function of the pass's samples and of the
// layer's name (core/random/default_generator.h); all else that they draw must
// be one of core/random/sample_scope.h. Buffers (running statistics) are put
// back to what they were before. A stage with groups that are checkpointed must
// stay where it is from its first forward on.
class PipelineStage {
 public:
  // `layers` are on the device already.
  PipelineStage(LayerList layers, StageOptions options);

  // What the layers make of `inputs`, which lie on the device: the output, then
  // the outgoing skips; without their graphs, which are kept for Backward. As
  // in every message, those that take a gradient say so (requires_grad).
  // Errors name the layer.
  absl::StatusOr<StageMessage> Forward(const StagePass& pass,
                                       const StageMessage& inputs);

  // The last stage's: the loss of the outputs, times `weight`, is what Backward
  // begins from. Targets lie anywhere.
  absl::StatusOr<DeferredScore> ForwardLoss(const StagePass& pass,
                                            const StageMessage& inputs,
                                            const LossTargets& targets,
                                            double weight);

  // Without anything for backward, as in evaluation; named sums are kept.
  absl::StatusOr<StageMessage> Infer(const StagePass& pass,
                                     const StageMessage& inputs);
  absl::StatusOr<DeferredScore> Judge(const StageMessage& outputs,
                                      const LossTargets& targets);

  // Computes activations that were not kept. Backward does it, too; here it may
  // be done while the gradient is on its way.
  absl::Status Recompute(int microbatch);

  // Adds the parameters' gradients, given those of the outputs (empty after
  // ForwardLoss), and returns those of the inputs: undefined where an input
  // takes none. Forgets the microbatch.
  absl::StatusOr<StageMessage> Backward(int microbatch,
                                        const StageMessage& gradients);

  // The same in two parts. The first leaves weights' to the second if it can.
  absl::StatusOr<StageMessage> BackwardInput(int microbatch,
                                             const StageMessage& gradients);
  absl::Status BackwardWeight(int microbatch);
  // Whose gradients the first part of that microbatch has left to the second.
  std::vector<at::Tensor> WeightsLeft(int microbatch) const;
  // What waits for more microbatches (weight_gradient_batch).
  absl::Status FlushWeights();

  // Since it was asked last.
  std::vector<AuxiliaryLoss> TakeAuxiliaryLosses();

  // Forgets every microbatch.
  void Clear();

  const std::string& name() const { return options_.name; }
  c10::Device device() const { return options_.device; }
  const LayerList& layers() const { return layers_; }
  // In alphabetic order; of the first stage, all further inputs.
  const std::vector<std::string>& incoming() const { return options_.incoming; }
  // Null unless the options ask for it.
  StatisticsRecords* records() const { return records_.get(); }
  bool has_loss() const { return static_cast<bool>(options_.loss); }
  const LossFunction& loss() const { return options_.loss; }

  // How many microbatches are between forward and the end of their backward, as
  // the schedule has it.
  int microbatches_held() const {
    return static_cast<int>(kept_.size() + left_.size());
  }
  // The layer that runs forward now, or null. Any thread may ask.
  const Layer* running_layer() const;

 private:
  using Sink = std::shared_ptr<WeightGradientSink>;
  using Kept = KeptMicrobatch;

  bool PassesBy(const std::string& skip) const;
  bool MayTakeGradients(const StageMessage& inputs) const;
  StageMessage HandedOver(const StageMessage& outputs, const Kept& kept) const;
  std::vector<BackwardRoot> RootsOf(const StageMessage& outputs) const;
  absl::StatusOr<StageMessage> Run(const StagePass& pass,
                                   const StageMessage& inputs);
  LayerFlow RunLayers(const LayerRange& range,
                      const std::optional<Samples>& samples, LayerFlow flow);
  LayerFlow RunCheckpointed(const LayerRange& group,
                            const std::optional<Samples>& samples,
                            LayerFlow flow);
  absl::StatusOr<LossResult> Loss(const StageMessage& outputs,
                                  const Kept& kept) const;
  absl::StatusOr<StageMessage> RunWithGraph(Kept* kept, DeferredScore* score);
  absl::StatusOr<StageMessage> RunWithoutGraph(Kept* kept,
                                               DeferredScore* score);
  absl::Status Keep(const LossTerms& terms, Kept* kept);
  void KeepSums(const LossTerms& terms);
  absl::StatusOr<StageMessage> Begin(Kept kept, DeferredScore* score);
  absl::StatusOr<StageMessage> GradientsOfInputs(const Kept& kept,
                                                 const StageMessage& gradients,
                                                 LeftToSecond* left) const;

  LayerList layers_;
  StageOptions options_;
  std::vector<std::vector<std::string>> last_pops_;  // by layer
  std::map<int, Kept> kept_;                         // after forward
  std::map<int, LeftToSecond> left_;  // after the first part of backward
  std::vector<Sink> waiting_;         // after the second, for others
  std::vector<AuxiliaryLoss> auxiliary_losses_;
  std::unique_ptr<StatisticsRecords> records_;
  const Layer* begun_ = nullptr;  // the last layer whose forward was
  // A pointer, so that a stage can be moved.
  std::unique_ptr<std::atomic<const Layer*>> running_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_
