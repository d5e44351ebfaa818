// The suite "gpt": a GPT's tokens a second beside PyTorch's, eager and
// compiled, in every layout.
//
// Cases of GPTs: each in every layout data x pipe, with PyTorch's parallel form
// of it, eager and compiled.
//
// What a rank's memory comes to by formula (models/transformer/
// training_memory.h), to stand beside what it is.

#ifndef TANDEM_TOOLS_BENCH_GPT_SUITE_H_
#define TANDEM_TOOLS_BENCH_GPT_SUITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// In MiB: parameters, gradients, the optimizer's state and the activations that
// the schedule holds at most, of the rank of the layout that has the most of
// all. Stages are those of a uniform cut, whatever the setting's. Nothing of
// what a process has anyway (LibTorch's libraries, Python) and of what an
// operator needs while it runs. 0 for a workload that is no GPT of
// models/transformer/sizes.h, and for a schedule that is not known.
double FormulaMib(const Workload& workload, const Layout& layout,
                  const Setting& setting);

// 0: as the workload says.
struct GptCaseSizes {
  int64_t batch_size = 0;
  int64_t tokens = 0;  // of a sample
};

// MODEL/LAYOUT of gpt_tiny, gpt_baby and gpt2, with AdamW, in the layouts of
// tools/bench/hybrid/cases.h.
std::vector<Case> GptCases(const GptCaseSizes& sizes);

// The peers of `names`, "eager" and "compile", that this layout has: one
// process, DistributedDataParallel, torch.distributed.pipelining, or
// DistributedDataParallel around its stages. Compiled ones may fail unless they
// are `wanted`.
std::vector<Peer> GptPeers(const Case& bench,
                           const std::vector<std::string>& names, bool wanted);

// "cases", "failures", "kernels", with tokens a second, the rate of
// floating-point operations, a rank's memory, what it comes to by formula
// (FormulaMib), and the settings.
std::vector<Table> GptTables(const std::vector<CaseResult>& results);

absl::StatusOr<SuiteReport> RunGptSuite(const BenchFlags& flags,
                                        const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPT_SUITE_H_
