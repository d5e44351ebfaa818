// Workloads: a model with its batches and its optimizer, by name.

#ifndef TANDEM_TOOLS_BENCH_CASE_WORKLOAD_H_
#define TANDEM_TOOLS_BENCH_CASE_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct Workload {
  std::string model;                 // its name (models/registry.h)
  std::vector<int64_t> input_shape;  // of one sample; {tokens} for tokens
  int64_t classes = 0;
  bool tokens = false;
  // For a model of tokens: weights that a token is multiplied with, and all
  // blocks' widths together.
  int64_t weights_of_token = 0;
  int64_t attention_of_token = 0;
  int64_t batch_size = 0;  // of all replicas together
  std::string optimizer;   // "sgd" (momentum 0.9) or "adamw"
  double learning_rate = 0;
  int64_t steps = 0;           // in a round
  int64_t compared_steps = 0;  // whose losses are compared before timing
  // Dtype of products and activations: "fp32", or "bf16" under autocast.
  std::string dtype = "fp32";
  // One sample's step, multiplications and additions / 1e9.
  double gflop = 0;
};

// mlp_small is bound by overhead, mlp_wide by communication, resnet18 and
// gpt_tiny by computation; mlp_deep is for pipelines, gpt_baby for tokens a
// second, llama_baby for layers that ranks share, gpt2 for GPUs, cnn for the
// trainer's default job. NotFound for others.
absl::StatusOr<Workload> WorkloadNamed(const std::string& model);

// A model of tokens, of samples of so many.
Workload WithTokens(Workload workload, int64_t tokens);

// The same, trained with SGD at that learning rate.
Workload WithSgd(Workload workload, double learning_rate,
                 int64_t compared_steps);

// One epoch of `steps` steps under DDP, each of the workload's batch on every
// rank, on samples that are made up.
std::vector<std::string> TrainFlags(const Workload& workload, int ranks,
                                    int64_t steps);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CASE_WORKLOAD_H_
