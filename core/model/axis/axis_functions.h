// Differentiable collectives over an axis group: how activations go into and
// out of layers that ranks share (Megatron-LM's mappings of its
// tensor-parallel regions, 1909.08053 section 3, and of sequence parallelism,
// 2205.05198 section 4.2).
//
//   function              forward                  backward
//   CopyToAxis            x                        all-reduce        Megatron's
//   f ReduceFromAxis        all-reduce               dy Megatron's g
//   ScatterToAxis         this rank's part         all-gather
//   GatherFromAxis        all-gather               this rank's part
//   AllGatherAlong        all-gather               reduce-scatter
//   ReduceScatterAlong    reduce-scatter           all-gather
//
// Each pair is the other's transpose, and so are they differentiable as often
// as one likes. Backward issues the collectives in the order in which autograd
// comes to them, which is the same on ranks that run the same layers. In a
// group of one rank each gives its input back, and there is no node.
//
// `dim` is the dimension that parts are cut along, not negative. Where the
// degree does not divide its size, parts are as long as the first,
// ceil(size / degree), and the last ones end in zeros, which are cut off when
// they are put together; who puts them together says the `size` of the whole
// (0: the degree times a part's). Errors as AxisGroup's.

#ifndef TANDEM_CORE_MODEL_AXIS_AXIS_FUNCTIONS_H_
#define TANDEM_CORE_MODEL_AXIS_AXIS_FUNCTIONS_H_

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/node.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/model/axis/axis_group.h"

namespace tandem {

using AxisGroupPtr = std::shared_ptr<AxisGroup>;

// x, which all ranks have, on its way to what they compute of it in parts: the
// gradient is the sum of all ranks'.
at::Tensor CopyToAxis(const at::Tensor& x, const AxisGroupPtr& group,
                      const std::string& what);

// The sum of all ranks' x, on each. Where nobody else has x, or sees its
// values, it takes the place of x.
at::Tensor ReduceFromAxis(at::Tensor x, const AxisGroupPtr& group,
                          const std::string& what);

// This rank's part of x, which all have.
at::Tensor ScatterToAxis(const at::Tensor& x, int64_t dim,
                         const AxisGroupPtr& group, const std::string& what);

// All ranks' parts as one, for what each computes alike of the whole: the
// gradient, which all have, is cut again.
at::Tensor GatherFromAxis(const at::Tensor& x, int64_t dim,
                          const AxisGroupPtr& group, const std::string& what,
                          int64_t size = 0);

// All ranks' parts as one, for what they compute of it in parts: the gradient
// is the sum of all ranks', of which each has its own part. Its node keeps this
// rank's part, of which a GatheredInput makes the whole again.
at::Tensor AllGatherAlong(const at::Tensor& x, int64_t dim,
                          const AxisGroupPtr& group, const std::string& what,
                          int64_t size = 0);

// This rank's part of the sum of all ranks' x.
at::Tensor ReduceScatterAlong(const at::Tensor& x, int64_t dim,
                              const AxisGroupPtr& group,
                              const std::string& what);

// Gathered input: what a linear layer keeps of its input for the weight's
// gradient where AllGatherAlong has made it: nothing, for it is gathered once
// more in backward (2205.05198, section 4.2.2). That keeps an activation from
// being whole on every rank between forward and backward.
class GatheredInput {
 public:
  // Empty.
  GatheredInput() = default;
  // Gives x to somebody who will ask for it once in each backward. Empty unless
  // AllGatherAlong has made x, and recorded it.
  explicit GatheredInput(const at::Tensor& x);

  explicit operator bool() const { return node_ != nullptr; }

  // x. Collective: the first of those that have kept the same x gathers it for
  // all of them. Differentiable where gradients are recorded.
  at::Tensor Gather() const;

  void reset() { node_.reset(); }

 private:
  c10::intrusive_ptr<torch::autograd::Node> node_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_AXIS_AXIS_FUNCTIONS_H_
