// What the benchmark trains: models by name, with their batches and optimizers.

#ifndef TANDEM_TOOLS_BENCH_BENCH_CASE_H_
#define TANDEM_TOOLS_BENCH_BENCH_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct BenchCase {
  std::string name;  // of the case and of the model (models/registry.h)
  std::vector<int64_t> input_shape;  // of one sample; {tokens} for tokens
  int64_t classes = 0;
  bool tokens = false;
  int64_t batch_size = 0;  // on each rank
  std::string optimizer;   // "sgd" (momentum 0.9) or "adamw"
  double learning_rate = 0;
  int64_t steps = 0;           // in a round
  int64_t compared_steps = 0;  // whose losses are compared before timing
  double gflop = 0;  // multiplications and additions of a rank's step, / 1e9
};

// mlp_small is bound by overhead, mlp_wide by communication, resnet18 and
// gpt_tiny by computation.
const std::vector<BenchCase>& BenchCases();

// The cases of these names, in that order; all of them for an empty list.
// InvalidArgument for an unknown name lists those that are known.
absl::StatusOr<std::vector<BenchCase>> CasesNamed(
    const std::vector<std::string>& names);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_BENCH_CASE_H_
