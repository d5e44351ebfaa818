// Pipeline stage: some layers on one device, and what their microbatches keep
// between forward and backward.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/context/compute_context.h"
#include "core/loss/deferred_score.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer.h"
#include "core/model/layer_flow.h"
#include "core/model/statistics_records.h"
#include "core/model/weight_gradient_sink.h"
#include "parallel/balance/cut.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/stage/kept_microbatch.h"
#include "parallel/pipeline/stage/stage_options.h"

namespace tandem {

// What a stage's forward gives.
struct StageOutput {
  // The layers' output, then the outgoing skips, without their graphs, which
  // are kept for backward. As in every message, those that take a gradient say
  // so (requires_grad). Where a loss is trained, nothing that is handed on.
  StageMessage message;
  std::optional<DeferredScore> score;  // nothing: no loss was computed
};

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

  // What the layers make of `inputs`, which lie on the device, and the loss of
  // it where there are `targets`, wherever they lie: the last stage's, whose
  // backward begins from it. A pass that keeps nothing gives named sums alone
  // of what is added. Errors name the layer.
  absl::StatusOr<StageOutput> Forward(
      const StagePass& pass, const StageMessage& inputs,
      std::optional<LossTargets> targets = std::nullopt);

  // Computes activations that were not kept. Backward does it, too; here it may
  // be done while the gradient is on its way.
  absl::Status Recompute(int microbatch);

  // Backward in two parts. The first returns the gradients of the inputs, given
  // those of the outputs (empty where a loss was computed): undefined where an
  // input takes none. It leaves the gradients of weights to the second if it
  // can. The second adds them to the parameters', and forgets the microbatch.
  absl::StatusOr<StageMessage> BackwardInput(int microbatch,
                                             const StageMessage& gradients);
  absl::Status BackwardWeight(int microbatch);
  // The weights to whose gradients the second part of that microbatch comes.
  std::vector<at::Tensor> WeightsLeft(int microbatch) const;
  // What waits for more microbatches (weight_gradient_batch).
  absl::Status FlushWeights();

  // What layers and the loss function have added since it was asked last.
  std::vector<LossTerm> TakeTerms();

  // Forgets every microbatch.
  void Clear();

  const std::string& name() const { return options_.name; }
  c10::Device device() const { return options_.device; }
  const LayerList& layers() const { return layers_; }
  // In alphabetic order; of the first stage, all further inputs.
  const std::vector<std::string>& incoming() const { return options_.incoming; }
  // Null unless the options ask for it.
  StatisticsRecords* records() const { return records_.get(); }
  // Null where there is none: not the last stage.
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

  // Layers that run one behind the other, or are computed again together.
  struct Part {
    LayerRange range;
    bool is_checkpointed = false;
  };

  absl::StatusOr<StageOutput> Compute(Kept& kept, StageKeeps keeps);
  LayerFlow RunLayers(const Part& part, const std::optional<Samples>& samples,
                      LayerFlow flow);
  LayerFlow RunCheckpointed(const Part& group,
                            const std::optional<Samples>& samples,
                            LayerFlow flow);
  absl::StatusOr<LossResult> Loss(const StageMessage& outputs,
                                  const Kept& kept) const;
  absl::Status KeepRoots(const StageMessage& outputs, const LossTerms& terms,
                         Kept& kept);
  void KeepTerms(const LossTerms& terms, const StagePass& pass);
  StageMessage HandedOver(const StageMessage& outputs, const Kept& kept) const;

  LayerList layers_;
  StageOptions options_;
  std::vector<Part> parts_;                          // all layers, in order
  std::vector<std::vector<std::string>> last_pops_;  // by layer
  // Skips that pass by: places in what goes out, and in what comes in.
  std::map<size_t, size_t> passing_;
  std::map<int, Kept> kept_;          // after forward
  std::map<int, LeftToSecond> left_;  // after the first part of backward
  std::vector<Sink> waiting_;         // after the second, for others
  std::vector<LossTerm> terms_;
  std::unique_ptr<StatisticsRecords> records_;
  const Layer* begun_ = nullptr;  // the last layer whose forward was
  // A pointer, so that a stage can be moved.
  std::unique_ptr<std::atomic<const Layer*>> running_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_
