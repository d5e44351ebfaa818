// Backward in two parts, compared with one in whole: what tests of it share.

#ifndef TANDEM_TESTS_PARALLEL_SPLIT_BACKWARD_SPLIT_PROBLEM_H_
#define TANDEM_TESTS_PARALLEL_SPLIT_BACKWARD_SPLIT_PROBLEM_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "parallel/split_backward/graph_split.h"

namespace tandem {

// Something to be split: what it is computed from, and how.
struct Problem {
  std::vector<at::Tensor> weights;
  at::Tensor input;
  std::function<at::Tensor(const at::Tensor& input)> run;
};

// Also clears them.
inline std::vector<at::Tensor> TakeGradients(
    const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (at::Tensor each : tensors) {
    all.push_back(each.grad());
    each.mutable_grad().reset();
  }
  return all;
}

inline GraphSplit FirstPart(const Problem& problem, const at::Tensor& input) {
  const at::Tensor output = problem.run(input);
  return GraphSplit::BackwardInputs(
      {torch::autograd::impl::gradient_edge(output)},
      {at::arange(output.numel()).to(output.dtype()).cos().view_as(output)},
      {input});
}

inline void Backward(const Problem& problem, const at::Tensor& input) {
  const at::Tensor output = problem.run(input);
  output.backward(
      at::arange(output.numel()).to(output.dtype()).cos().view_as(output));
}

inline bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.equal(b);
}

// The first part gives the input's gradient alone, `left` weights' are left,
// and the second gives the joint backward's bits.
inline void ExpectSplit(const Problem& problem, size_t left) {
  const bool takes = problem.input.is_floating_point();
  const auto input = [&] {
    return problem.input.clone().requires_grad_(takes);
  };
  const at::Tensor whole = input();
  Backward(problem, whole);
  const std::vector<at::Tensor> expected = TakeGradients(problem.weights);

  const at::Tensor parted = input();
  GraphSplit split = FirstPart(problem, parted);
  EXPECT_TRUE(SameBits(parted.grad(), whole.grad()));
  EXPECT_EQ(split.weights().size(), left);
  for (const at::Tensor& each : split.weights()) {
    EXPECT_FALSE(each.grad().defined());
  }
  size_t early = 0;
  for (const at::Tensor& each : problem.weights) early += each.grad().defined();
  EXPECT_EQ(early + left, problem.weights.size());

  const at::Tensor before =
      parted.grad().defined() ? parted.grad().clone() : at::Tensor();
  split.BackwardWeights();
  EXPECT_TRUE(split.weights().empty());
  EXPECT_TRUE(SameBits(parted.grad(), before));
  const std::vector<at::Tensor> found = TakeGradients(problem.weights);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(SameBits(found[i], expected[i])) << "weight " << i;
  }
}

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_SPLIT_BACKWARD_SPLIT_PROBLEM_H_
