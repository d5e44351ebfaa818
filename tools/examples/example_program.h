// What the examples have in common, so that each shows its own idea alone:
// flags, ranks, devices, samples, and how ranks speak.

#ifndef TANDEM_TOOLS_EXAMPLES_EXAMPLE_PROGRAM_H_
#define TANDEM_TOOLS_EXAMPLES_EXAMPLE_PROGRAM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"

namespace tandem {

// The flags that all examples take. Defaults are the tutorial's, but for the
// steps, of which it takes one.
struct ExampleOptions {
  std::string device;  // "cpu", "cuda" or "sim"
  int64_t batch_size = 20;
  int64_t steps = 10;
  double learning_rate = 0.001;
  uint64_t seed = 0;
};

// One rank of an example: what it was asked for, whom it talks to, and what it
// runs on.
struct ExampleRank {
  const ExampleOptions& options;
  Communicator& world;
  std::vector<c10::Device> devices;  // its own

  int rank() const { return world.rank(); }
};

struct Example {
  std::string name;   // the program's
  std::string usage;  // what --help says above the flags
  int devices_per_rank = 1;
  // What it runs on without --device, where there is no GPU: "cpu" or "sim".
  std::string device = "cpu";
  std::function<absl::Status(const ExampleRank&)> run;
};

// The main function of an example: reads the flags, starts the ranks if it is
// the launcher, and else runs one. Returns what to exit with: 0; 2 for flags
// that are refused; 1 for what went wrong later, which the other ranks are told
// of.
int RunExample(int argc, char** argv, const Example& example);

// What a rank trains on: inputs [batch_size, 10] on its first device and labels
// [batch_size, 5] on its last, of normally distributed numbers. Ranks have
// consecutive rows of one random tensor, so that one rank with a batch of 40
// has the samples of two ranks with batches of 20.
struct ExampleSamples {
  at::Tensor inputs;
  at::Tensor labels;
};
ExampleSamples MakeExampleSamples(const ExampleRank& rank);

// Rank 0 prints the line; the others do nothing.
void Say(const ExampleRank& rank, const std::string& line);

// Rank 0 prints every rank's line, by rank. Collective.
absl::Status SayEach(const ExampleRank& rank, const std::string& line);

// WeightsSha256 of `weights`, which are to be the same on all ranks: Internal,
// naming the first rank that differs from rank 0, if they are not. Collective.
absl::StatusOr<std::string> CommonFingerprint(const ExampleRank& rank,
                                              const NamedTensors& weights);

// What training has changed.
struct ExampleResult {
  double loss_before = 0;  // on this rank's samples
  double loss_after = 0;
  std::string weights_before;  // their fingerprint
  NamedTensors weights;        // as they are now
};

// Rank 0 prints every rank's losses, their means, and the fingerprints of the
// weights, which must be the same on all ranks (see CommonFingerprint).
// Collective.
absl::Status SayResult(const ExampleRank& rank, const ExampleResult& result);

}  // namespace tandem

#endif  // TANDEM_TOOLS_EXAMPLES_EXAMPLE_PROGRAM_H_
