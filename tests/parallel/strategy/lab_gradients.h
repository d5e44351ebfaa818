// Gradients of the strategy laboratory: the whole model's, of one step in any
// layout of the mesh, to be compared with one device's.

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_LAB_GRADIENTS_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_LAB_GRADIENTS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "parallel/strategy/strategy.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {

struct LabGradients {
  Score score;              // of the step, as rank 0 has it
  TensorsByName gradients;  // by parameter, whole, of double
};

// A step of the job on its first batch by plain SGD, without clipping. What it
// takes from a parameter is the rate times the gradient, wherever the parameter
// lies and whoever has summed the gradient. The rate is a large power of two,
// so that a gradient is off by one rounding of its own magnitude, not of the
// parameter's. Parameters begin at values of which none is 0 throughout, as a
// head is at first, behind which there would be no gradient.
absl::StatusOr<LabGradients> GradientsInLab(const LabLayout& layout,
                                            LabJob job);

// By parameter: the norm of the difference, in parts of the expected gradient's
// norm. The test fails where names or shapes differ, or nothing is expected.
std::map<std::string, double> GradientDistances(const TensorsByName& found,
                                                const TensorsByName& expected);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_LAB_GRADIENTS_H_
