// What the matrices of settings train, and how their values' names are meant.

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_PROBLEM_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_PROBLEM_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/batch.h"
#include "parallel/pipeline/executor.h"

namespace tandem {

struct BatchShape {
  std::vector<int64_t> inputs;  // of one sample
  int64_t classes = 1;
  bool tokens = false;  // inputs and targets are token numbers
};

// Noise: the same for the same seed and number.
Batch RandomBatch(const BatchShape& shape, int64_t size, uint64_t seed,
                  int number);

// "never", "except_last", "always".
ActivationCheckpointing CheckpointingNamed(const std::string& name);

// "cpu": the CPU, `count` times; "sim": sim:first and those that follow, of 16.
std::vector<c10::Device> MatrixDevices(const std::string& type, int first,
                                       int count);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_PROBLEM_H_
