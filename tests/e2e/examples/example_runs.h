// Runs of the programs of tools/examples, and what they print. For tests.

#ifndef TANDEM_TESTS_E2E_EXAMPLES_EXAMPLE_RUNS_H_
#define TANDEM_TESTS_E2E_EXAMPLES_EXAMPLE_RUNS_H_

#include <string>
#include <vector>

#include "tests/e2e/program.h"

namespace tandem {

using Flags = std::vector<std::string>;

constexpr char kDdpBasic[] = "tools/examples/ddp_basic";
constexpr char kDdpCheckpoint[] = "tools/examples/ddp_checkpoint";
constexpr char kDdpModelParallel[] = "tools/examples/ddp_model_parallel";

// How far apart losses may be whose gradients were summed in another order: two
// are printed to 6 decimals, and some 128 roundings of float each, of numbers
// up to 1, come before (tests/models/rounding.h).
constexpr double kLossTolerance = 1e-6 + 4e-6;

// What an example ends with.
struct ExampleOutput {
  std::string out;             // all that it printed
  std::string weights_before;  // fingerprints of 64 digits
  std::string weights_after;
  double loss_before = 0;  // of all samples, to 6 decimals
  double loss_after = 0;
};

// Runs an example on so many ranks. Expects that it exits with 0, complains of
// nothing and leaves no process behind, that ranks agree on their weights, and
// that training moved these and made the loss less.
ExampleOutput RunExample(const std::string& program, int ranks,
                         const Flags& flags = {});

// The text's first line that begins with `start`, without that; fails the test
// if there is none.
std::string RestOfLine(const std::string& text, const std::string& start);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_EXAMPLES_EXAMPLE_RUNS_H_
