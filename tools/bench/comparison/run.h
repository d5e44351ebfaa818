// A case, measured: tandem beside peers of several kinds, started as processes,
// in turns.

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_RUN_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/environment.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

struct ComparisonOptions {
  absl::StatusOr<std::string> python;  // or why there is none
  std::string backend = "shm";         // what moves tandem's gradients
  int threads = 1;                     // for each rank's operators
  // What all train on, by --device's name: on another than the CPU one rank,
  // which is bound to no core.
  std::string device = "cpu";
  // Products and convolutions of fp32 may round their operands to TF32, on both
  // sides: PyTorch's default has convolutions do so, and products not.
  bool allow_tf32 = false;
  int rounds = 7;
  int64_t steps = 0;   // in a round; 0: as the case says
  std::string folder;  // scratch, an existing one: names are of one side each

  int64_t StepsPerRound(const Workload& workload) const {
    return steps > 0 ? steps : workload.steps;
  }
};

// InvalidArgument names the flag: --threads, --rounds or --steps.
absl::Status CheckOptions(const ComparisonOptions& options);

// The same with a folder of its own for what is called so: ranks that meet
// through a file want a new one.
absl::StatusOr<ComparisonOptions> InOwnFolder(ComparisonOptions options,
                                              const std::string& name);

// What processes of both sides find in their environment: threads, Gloo on the
// loopback, caches in the folder.
Environment SideEnvironment(const ComparisonOptions& options);

// The program whose ranks a contender has.
enum class Program {
  kTandem,     // tools/bench/rank, in the case's layout
  kPyTorch,    // tools/bench/peers/peer.py, a rank for each device
  kOneProcess  // the same, one rank
};

// Writes the weights and batches from which all contenders begin.
absl::Status WriteInputs(const Case& bench, const ComparisonOptions& options);

// One that cannot be started says why in its status().
Contender StartContender(const std::string& name, Program program,
                         const Case& bench, const ComparisonOptions& options);

// --python, --threads, --rounds (else `usual_rounds`) and --steps.
// InvalidArgument as CheckOptions. Looks for the Python, and keeps why there is
// none.
absl::StatusOr<ComparisonOptions> OptionsFromFlags(const BenchFlags& flags,
                                                   int usual_rounds,
                                                   const std::string& folder);

// The cases of --cases among these, in each of --dtypes. InvalidArgument for
// unknown ones.
absl::StatusOr<std::vector<Case>> CasesFromFlags(const std::vector<Case>& all,
                                                 const BenchFlags& flags);

// A peer that tandem is compared with.
struct Peer {
  std::string name;
  Program program = Program::kPyTorch;
  std::vector<Setting> settings;  // of which it takes the fastest
  // Its process may fail: the result then says why.
  bool may_fail = false;
};

// Peers that are called as the recipes that they follow, of which those in
// `may_fail` may.
std::vector<Peer> RecipePeers(const std::vector<std::string>& recipes,
                              Program program,
                              const std::vector<std::string>& may_fail);

// What a suite measures besides, of all contenders, tandem's first.
using FurtherMeasurements =
    absl::FunctionRef<absl::Status(const std::vector<Contender*>& all)>;

// Writes weights and batches to a folder of the case's own, starts all, and
// compares losses with tandem's, which `losses` learns; then they take turns.
// Whoever is not at work sleeps, and keeps its memory. Prints what it does on
// stderr, and at last finds tandem's floor on the CPU. An error when losses
// differ, or one fails that may not.
absl::StatusOr<CaseResult> RunCase(const Case& bench,
                                   const std::vector<Peer>& peers,
                                   KnownLosses losses,
                                   const ComparisonOptions& options,
                                   FurtherMeasurements further);
// The same without any.
absl::StatusOr<CaseResult> RunCase(const Case& bench,
                                   const std::vector<Peer>& peers,
                                   KnownLosses losses,
                                   const ComparisonOptions& options);

// Runs each of these cases as the flags of OptionsFromFlags and --backend say.
// Without a Python it is an error.
absl::StatusOr<std::vector<CaseResult>> RunCases(const std::vector<Case>& cases,
                                                 const std::vector<Peer>& peers,
                                                 const BenchFlags& flags,
                                                 int usual_rounds,
                                                 const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_RUN_H_
