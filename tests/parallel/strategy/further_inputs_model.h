// A model with several inputs, its batches, and the job that trains it.

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_FURTHER_INPUTS_MODEL_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_FURTHER_INPUTS_MODEL_H_

#include <cstdint>

#include "core/model/batch.h"
#include "core/model/layer.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace further_inputs {

constexpr uint64_t kSeed = 5;
constexpr double kRate = 0.1;
constexpr int kSteps = 3;
constexpr int64_t kSamples = 13;
constexpr int64_t kWidth = 6;

// Token types at the beginning, two further views in the middle, a mask twice,
// the second time in the last layer; and a skip connection.
LayerSpecs Specs();

// Of kSamples, with "types", "views" (two) and "mask".
Batch BatchOf(int number);

LabJob Job(int64_t microbatch_size = 0);

}  // namespace further_inputs
}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_FURTHER_INPUTS_MODEL_H_
