// Tensor-parallel region: the part of a layer between two of its own
// activations that ranks compute in parts, such as attention by heads or the
// inside of an MLP (Megatron-LM, 1909.08053, figure 3; 2205.05198, figure 5).

#ifndef TANDEM_CORE_MODEL_AXIS_TENSOR_REGION_H_
#define TANDEM_CORE_MODEL_AXIS_TENSOR_REGION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "core/model/axis/tensor_parallel.h"

namespace tandem {

// Activations outside of a region are [n, tokens, ...] on every rank or, with
// sequence parallelism, [n, tokens / degree, ...]; inside, each rank has all
// tokens and a part of what is computed. Functions are differentiable, and give
// back what they take where the region is whole.
class TensorRegion {
 public:
  // Whole.
  TensorRegion() = default;
  // `name` is that of the module whose region it is, for errors.
  TensorRegion(const TensorParallel& parallel, const std::string& name);

  bool is_whole() const { return parallel_.group == nullptr; }
  bool is_sequence_parallel() const {
    return !is_whole() && parallel_.sequence_parallel;
  }
  // This rank's index and the number of ranks; of a whole one 0 and 1.
  int64_t index() const { return is_whole() ? 0 : parallel_.group->index(); }
  int64_t degree() const { return is_whole() ? 1 : parallel_.group->degree(); }

  // What is outside, inside: all tokens, whose gradient is the sum of all
  // ranks'. `tokens`: of a whole sample where the degree does not divide them;
  // 0: it does. Under autocast it goes there in the dtype of products, of half
  // the bytes, and its gradient is summed in that.
  at::Tensor Enter(const at::Tensor& x, int64_t tokens = 0) const;

  // The sum of what ranks have computed inside, outside. Where the degree does
  // not divide the tokens, the last ranks' ones are zeros.
  at::Tensor Leave(at::Tensor part) const;

  // What all ranks have computed alike of all tokens, outside.
  at::Tensor Outside(const at::Tensor& x) const;

  // What is outside, of all tokens, for what all ranks compute of it alike.
  // `tokens` as Enter takes them.
  at::Tensor Everywhere(const at::Tensor& x, int64_t tokens = 0) const;

  // Row 0 of the tokens, [n, ...], on all ranks, for what they compute of it
  // alike.
  at::Tensor FirstToken(const at::Tensor& x) const;

  // The position, within a sample, of the first of so many tokens outside.
  int64_t FirstPosition(int64_t tokens) const;

  // Which element of its sample the first one of x is, outside: of a row, for
  // what goes by elements (dropout).
  int64_t FirstElement(const at::Tensor& x) const;

  // Throws c10::ValueError, by name, where samples of so many tokens cannot be
  // divided as they are outside.
  void CheckTokens(int64_t tokens) const;

 private:
  TensorParallel parallel_ = {nullptr, false};
  std::string name_;
  std::string activations_, sums_;  // what is said of collectives
};

// A base of modules of which each rank has all parameters, and which are given
// a region of their own: whole until Divide.
class TensorRegionModule : public TensorParallelModule {
 public:
  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    region_ = TensorRegion(parallel, name);
    return {};
  }

 protected:
  TensorRegion region_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_AXIS_TENSOR_REGION_H_
