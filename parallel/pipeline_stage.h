// One stage of a pipeline: some layers on one device, and what their
// microbatches keep between forward and backward.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/layer.h"
#include "core/loss.h"
#include "core/weight_gradient_sink.h"

namespace tandem {

// Used by one thread at a time.
class PipelineStage {
 public:
  // `layers` are on the device already. `name` is for messages: "stage 1 of 4,
  // on sim:1".
  // With `splits_backward` microbatches go back in two parts, else in one.
  PipelineStage(std::string name, LayerList layers, c10::Device device,
                bool splits_backward = false);

  // The layers' output for `input`, which lies on the device, without its
  // graph: that is kept until Backward. Errors name the layer.
  absl::StatusOr<at::Tensor> Forward(int microbatch, const at::Tensor& input);

  // The last stage's: the loss of the output, times `weight`, is what Backward
  // begins from. Targets lie anywhere.
  absl::StatusOr<Score> ForwardLoss(int microbatch, const at::Tensor& input,
                                    const at::Tensor& targets, double weight,
                                    const LossFunction& loss);

  // Adds the parameters' gradients, given that of the output (undefined after
  // ForwardLoss), and returns that of the input: undefined where the input
  // takes none (token numbers). Forgets the microbatch.
  absl::StatusOr<at::Tensor> Backward(int microbatch,
                                      const at::Tensor& gradient);

  // The same in two parts. The first leaves the gradients of weights to the
  // second where a layer can (core/weight_gradient_sink.h); where it cannot,
  // the first does both.
  absl::StatusOr<at::Tensor> BackwardInput(int microbatch,
                                           const at::Tensor& gradient);
  absl::Status BackwardWeight(int microbatch);

  // Forgets every microbatch.
  void Clear();

  const std::string& name() const { return name_; }
  c10::Device device() const { return device_; }
  const LayerList& layers() const { return layers_; }
  bool splits_backward() const { return splits_backward_; }

 private:
  using Sink = std::shared_ptr<WeightGradientSink>;
  struct Kept {
    at::Tensor input;
    at::Tensor output;  // or the loss
    Sink sink;
  };

  // Through all layers, with the graph.
  absl::StatusOr<at::Tensor> Run(const at::Tensor& input) const;
  absl::StatusOr<at::Tensor> Begin(int microbatch, const at::Tensor& input);

  std::string name_;
  LayerList layers_;
  c10::Device device_;
  bool splits_backward_;
  std::map<int, Kept> kept_;  // after forward
  std::map<int, Sink> left_;  // after the first part of backward
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_H_
