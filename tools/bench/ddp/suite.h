// The suite "ddp": tandem's distributed data parallel beside PyTorch's.
//
// Start-up times: how long until a job of several ranks has done its first
// step.

#ifndef TANDEM_TOOLS_BENCH_DDP_SUITE_H_
#define TANDEM_TOOLS_BENCH_DDP_SUITE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

struct StartupResult {
  double ours_ms = 0;  // medians
  double peer_ms = 0;
};

// From the start of `train --nproc_per_node=RANKS` to the line that reports the
// first step, and the same of torchrun with peers/first_step.py: mlp_small, not
// bound to cores, in turns.
// Internal where one does not come that far.
absl::StatusOr<StartupResult> MeasureStartup(int ranks,
                                             const ComparisonOptions& options);

// mlp_small, mlp_wide, resnet18, gpt_tiny, in replicas of one rank: a batch of
// the workload for each rank.
std::vector<Case> DdpCases(int ranks);

struct DdpResult : CaseResult {
  // Rates of a rank, while all ranks multiply: at::mm's rate, and
  // MatrixProduct's.
  double mkl_gflops = 0;
  double one_dnn_gflops = 0;
  // All-reduces of as many numbers as the model has gradients, over tandem's
  // backend and over Gloo, with nothing else to do.
  double all_reduce_ms = 0;
  double gloo_all_reduce_ms = 0;
  nlohmann::json profile;  // of rank 0's step alone: see op_profile.h
};

// "cases", "failures", "kernels", with the most memory of a rank.
// "breakdown": where tandem's and the peers' steps go: a step, the same without
// the other ranks, the communication of gradients and what of it is exposed,
// processor time, page faults.
// "limits": what the machine could do at best, measured in the same run: how
// long a step would take at the rate of large matrix products; how long the
// gradients take with nothing else to do. "floors" beside it: see report.h.
// "startup" where it was measured.
std::vector<Table> DdpTables(const std::vector<DdpResult>& results,
                             const StartupResult& startup);

// "profile": the processor time of a step without the other ranks, by kinds of
// operators; "operators" in which it spends most, and "products", the step's
// own, each alone and warm.
std::vector<Table> ProfileTables(const std::vector<DdpResult>& results);

absl::StatusOr<SuiteReport> RunDdpSuite(const BenchFlags& flags,
                                        const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DDP_SUITE_H_
