// Pipeline stage: some layers on one device, and what their microbatches keep
// between forward and backward.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/node.h>

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
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer.h"
#include "core/model/layer_flow.h"
#include "core/model/shared_statistics.h"
#include "core/model/statistics_records.h"
#include "core/model/weight_gradient_sink.h"
#include "parallel/balance/cut.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/stage/backward_slices.h"
#include "parallel/pipeline/stage/layer_parameters.h"
#include "parallel/split_backward/graph_split.h"

namespace tandem {

// What a stage is told once; a StagePass comes with each microbatch.
struct StageOptions {
  // For messages: "stage 1, on sim:1".
  std::string name;
  c10::Device device = c10::kCPU;
  // Skip connections on their way into the stage and out of it
  // (core/model/layer_links.h); one in both that no layer here takes passes by.
  // Out of the last stage: to the loss.
  std::vector<std::string> incoming;
  std::vector<std::string> outgoing;
  // The last stage's; null for others.
  LossFunction loss;
  // Microbatches go back in two parts, else in one.
  bool splits_backward = false;
  // The gradients of weights of so many microbatches are computed together
  // (core/model/weight_gradient_sink.h), whatever splits_backward says. 1: of
  // each for itself.
  int weight_gradient_batch = 1;
  // Products and activations are in this dtype (core/precision/autocast.h);
  // the loss is computed in float. Unset: in the parameters' own.
  std::optional<c10::ScalarType> param_dtype;
  // Running statistics are left alone; what microbatches would add to them goes
  // to records().
  bool records_statistics = false;
  // Tensors and gradients lie in memory behind every layer as they do where a
  // stage ends (core/model/layer_flow.h).
  bool crosses_borders = false;
  // Groups of layers whose activations are computed again in backward, in
  // order, counted from the stage's first
  // (parallel/activation_checkpointing/checkpointed_groups.h).
  std::vector<LayerRange> checkpointed;
  // With whom the layers are divided, and so the loss; null: with nobody.
  std::shared_ptr<const TensorParallel> tensor_parallel;
  // The row of a trace that shows its layers (core/device/device_trace.h).
  std::string track = "layers";
};

// What a stage keeps of a microbatch for its backward.
enum class StageKeeps {
  kActivations,
  // Inputs, from which activations are computed again before backward
  // (activation checkpointing; Chen et al., 1604.06174).
  kInputs,
  kNothing,  // there is none, as in evaluation
};

// A microbatch on its way through a stage.
struct StagePass {
  Microbatch microbatch;
  std::optional<Samples> samples;
  StageKeeps keeps = StageKeeps::kActivations;
  // Does every microbatch of the step? Else it is not known from graphs which
  // outputs take a gradient, and all that may are said to, alike for all.
  bool all_keep_activations = true;
  // Its samples' part of the step's: losses that layers add are multiplied by
  // it.
  double weight = 1;
  // What the loss function's loss is multiplied by.
  double loss_weight = 1;
  // Gradients are so many times as great (core/precision/loss_scale.h), which
  // is a number on the stage's device. Undefined: as great as they are.
  at::Tensor loss_scale = {};
};

// What backward begins from: an output, by where its graph ends, so that its
// memory goes once it was handed over; or a loss.
struct BackwardRoot {
  torch::autograd::Edge edge;
  std::optional<size_t> output;  // whose gradient comes
  at::Tensor one;                // of a loss: its gradient
};

BackwardRoot RootOfOutput(const at::Tensor& tensor, size_t output);
// Throws c10::Error unless the loss is one number.
BackwardRoot RootOfLoss(const at::Tensor& loss);
// Backward begins from losses with gradients so many times as great, if `scale`
// is defined: a number on their device. What is reported of a loss stays. (One
// in fp16 may overflow, as in PyTorch: the step is skipped then, as any other
// that does.)
void ScaleLosses(std::vector<BackwardRoot>& roots, const at::Tensor& scale);

// What a stage keeps of a microbatch between forward and backward.
struct KeptMicrobatch {
  StagePass pass;
  StageMessage inputs;  // leaves of the graph
  // Nothing: to be computed again.
  std::optional<std::vector<BackwardRoot>> roots;
  std::optional<LossTargets> targets;  // nothing: there is no loss
  std::shared_ptr<WeightGradientSink> sink;
  KeptStatistics statistics;               // of a first pass without a graph
  std::shared_ptr<BackwardSlices> slices;  // null: nobody looks on
};

// What the first part of backward leaves to the second.
struct PendingWeightGradients {
  // What layers leave by themselves; may be null.
  std::shared_ptr<WeightGradientSink> sink;
  // All other gradients, with splits_backward; unless groups are checkpointed,
  // which would be computed again twice.
  GraphSplit rest;
};

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
  // can. The second adds them to the parameters', issues no collective, and
  // forgets the microbatch.
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

  // Null: they are always there. It must outlive the stage's graphs.
  void set_layer_parameters(LayerParameters* parameters) {
    parameters_ = parameters;
  }
  LayerParameters* layer_parameters() const { return parameters_; }

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
    return static_cast<int>(kept_.size() + deferred_.size());
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
  // `slices` may be null.
  LayerFlow RunLayers(const Part& part, const std::optional<Samples>& samples,
                      LayerFlow flow, BackwardSlices* slices);
  LayerFlow RunCheckpointed(const Part& group,
                            const std::optional<Samples>& samples,
                            LayerFlow flow);
  absl::StatusOr<LossResult> Loss(const StageMessage& outputs,
                                  const Kept& kept) const;
  absl::Status KeepRoots(const StageMessage& outputs, const LossTerms& terms,
                         Kept& kept);
  void KeepTerms(const LossTerms& terms, const StagePass& pass);
  StageMessage OutputLeaves(const StageMessage& outputs,
                            const Kept& kept) const;

  LayerList layers_;
  StageOptions options_;
  LayerParameters* parameters_ = nullptr;
  std::vector<Part> parts_;                          // all layers, in order
  std::vector<std::vector<std::string>> last_pops_;  // by layer
  // Skips that pass by: places in what goes out, and in what comes in.
  std::map<size_t, size_t> passing_;
  std::map<int, Kept> kept_;  // after forward
  std::map<int, PendingWeightGradients>
      deferred_;               // after the first part of backward
  std::vector<Sink> waiting_;  // after the second, for others
  std::vector<LossTerm> terms_;
  std::unique_ptr<StatisticsRecords> records_;
  const Layer* begun_ = nullptr;  // the last layer whose forward was
  // A pointer, so that a stage can be moved.
  std::unique_ptr<std::atomic<const Layer*>> running_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_H_
