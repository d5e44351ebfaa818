// Kept microbatch: what a stage keeps of one between forward and backward.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_KEPT_MICROBATCH_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_KEPT_MICROBATCH_H_

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/node.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "core/loss/loss.h"
#include "core/model/kept_statistics.h"
#include "core/model/weight_gradient_sink.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/stage/stage_options.h"
#include "parallel/split_backward/graph_split.h"

namespace tandem {

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
// is defined: a number on their device. What is
// reported of a loss stays. (One in fp16 may overflow, as in PyTorch: the step
// is skipped then, as any other that does.)
void ScaleLosses(std::vector<BackwardRoot>& roots, const at::Tensor& scale);

struct KeptMicrobatch {
  StagePass pass;
  StageMessage inputs;  // leaves of the graph
  // Nothing: to be computed again.
  std::optional<std::vector<BackwardRoot>> roots;
  std::optional<LossTargets> targets;  // nothing: there is no loss
  std::shared_ptr<WeightGradientSink> sink;
  KeptStatistics statistics;  // of a first pass without a graph
};

// What the first part of backward leaves to the second.
struct LeftToSecond {
  // What layers leave by themselves; may be null.
  std::shared_ptr<WeightGradientSink> sink;
  // All other gradients, with splits_backward; unless groups are checkpointed,
  // which would be computed again twice.
  GraphSplit rest;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_KEPT_MICROBATCH_H_
