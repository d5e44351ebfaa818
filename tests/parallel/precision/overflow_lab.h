// Laboratory of overflows: jobs in which a gradient is spoilt in a step, and
// what all ranks do about it.

#ifndef TANDEM_TESTS_PARALLEL_PRECISION_OVERFLOW_LAB_H_
#define TANDEM_TESTS_PARALLEL_PRECISION_OVERFLOW_LAB_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/model/layer.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {

constexpr int64_t kOverflowBatch = 24;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A gate, whose weight ("gate1.weight", "gate2.weight") a test can spoil, in
// each of two stages.
LayerSpecs GatedSpecs();
// The same with a weight between them that is much larger than what its
// gradient is the product of.
LayerSpecs WideSpecs();

std::vector<LabLayout> OverflowLayouts();

// A loss scale that grows every third step.
LabChange Scaled(const LabChange& further = nullptr, double init_scale = 1024);
// A step that is not finite is skipped, and nothing scaled (--skip_nonfinite).
LabChange SkippingAlone(const LabChange& further = nullptr);

LabJob GatedJob(int steps, const LabChange& change);

// Where a gradient is spoilt.
struct OverflowFault {
  int step;
  int rank;  // -1: all
  std::string gate;
  double value;
};

// Trains on batches 0, 1, 2, 3 with a fault in step 1: as on 0, 2, 3. Or with
// one in step 0. All ranks see these scales after the steps.
void ExpectSkipped(const LabLayout& layout, const OverflowFault& fault,
                   const std::vector<double>& scales,
                   const std::function<LabJob(int steps)>& job);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_PRECISION_OVERFLOW_LAB_H_
