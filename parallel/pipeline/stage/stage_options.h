// Stage options: what a pipeline's stage is told once, and with each pass of a
// microbatch.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_OPTIONS_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_OPTIONS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/loss/loss.h"
#include "parallel/balance/cut.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_STAGE_OPTIONS_H_
