// For tests: a training step of a model that ranks share by tensor parallelism,
// and of the same model on one rank, with gradients of whole parameters.

#ifndef TANDEM_TESTS_MODELS_TENSOR_PARALLEL_LAB_H_
#define TANDEM_TESTS_MODELS_TENSOR_PARALLEL_LAB_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/loss/loss.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/layer_list.h"
#include "core/testing/axis_ranks.h"

namespace tandem {

// What is trained, and of what.
struct TensorProblem {
  LayerSpecs specs;
  LossFunction loss;
  at::Tensor inputs, targets;
  Skips further = {};
  at::ScalarType dtype = at::kDouble;  // of parameters
  std::optional<at::ScalarType> autocast = {};
  // Dropout is a function of them.
  Samples samples = {/*seed=*/7, /*step=*/3, /*first=*/16};
  // Floating-point inputs take a gradient.
  bool wants_input_gradient = false;
  // Gradients of weights are left in a sink, and computed after backward.
  bool splits_backward = false;
};

// What came of it. A parameter's tensors are those of the whole one.
struct TensorStep {
  LossResult result;
  TensorsByName values, gradients;  // before the step, and after
  at::Tensor input_gradient;
  AxisCalls forward, backward, late;  // of rank 0; late: of a sink
};

// On one rank, outside of all scopes.
TensorStep WholeStep(const TensorProblem& problem);

// Over so many ranks. Losses, scores, and parameters and gradients that each
// rank has whole must be the same bits on all ranks, else the test fails;
// gradients that a parameter's traits say are summed are.
TensorStep DividedStep(const TensorProblem& problem, int64_t degree,
                       bool sequence_parallel);

// The test fails where anything is further from it than the tolerance, of the
// norm of what is expected, or where initial values differ at all.
void ExpectSameStep(const TensorStep& actual, const TensorStep& expected,
                    double tolerance);

std::shared_ptr<const TensorParallel> MakeTensorParallel(
    std::shared_ptr<AxisGroup> group, bool sequence_parallel);

}  // namespace tandem

#endif  // TANDEM_TESTS_MODELS_TENSOR_PARALLEL_LAB_H_
