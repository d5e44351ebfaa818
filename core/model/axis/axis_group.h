// Axis group: the ranks along one axis of the mesh that share layers, each with
// a part of their parameters or of their tokens (Megatron-LM's
// tensor-model-parallel group), and their collectives.

#ifndef TANDEM_CORE_MODEL_AXIS_AXIS_GROUP_H_
#define TANDEM_CORE_MODEL_AXIS_AXIS_GROUP_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

namespace tandem {

// An interface, so that layers know no communicator. Collectives are issued by
// all ranks of the group in the same order, in forward and in backward; they
// block, or are ordered on the calling thread's stream of the tensors' device.
// Tensors are dense and contiguous, of one shape and dtype on all ranks; those
// without elements are taken, too. `what` is said in errors: "activations of
// transformer.h.0.mlp". Errors are LibTorch's exceptions, as a layer's are:
// c10::DistError with the communicator's words.
//
// For one thread at a time, the one that runs the layers.
class AxisGroup {
 public:
  // axis: the mesh's name of it, "tensor". 0 <= index < degree.
  AxisGroup(std::string axis, int64_t index, int64_t degree)
      : axis_(std::move(axis)), index_(index), degree_(degree) {}
  virtual ~AxisGroup() = default;

  const std::string& axis() const { return axis_; }
  int64_t index() const { return index_; }  // this rank's
  int64_t degree() const { return degree_; }

  // In place: x becomes the sum over the ranks, the same bits on each.
  virtual void AllReduceSum(const at::Tensor& x, const std::string& what) = 0;
  // all [degree, ...] becomes every rank's `mine` [...], by index.
  virtual void AllGather(const at::Tensor& all, const at::Tensor& mine,
                         const std::string& what) = 0;
  // mine [...] becomes the sum over the ranks of all[index], all [degree, ...].
  virtual void ReduceScatterSum(const at::Tensor& mine, const at::Tensor& all,
                                const std::string& what) = 0;

 private:
  const std::string axis_;
  const int64_t index_;
  const int64_t degree_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_AXIS_AXIS_GROUP_H_
