// Cases of GPTs: each in every layout data x pipe, with PyTorch's parallel form
// of it, eager and compiled.

#ifndef TANDEM_TOOLS_BENCH_GPT_CASES_H_
#define TANDEM_TOOLS_BENCH_GPT_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/case/case.h"
#include "tools/bench/comparison/run.h"

namespace tandem {

// 0: as the workload says.
struct GptSizes {
  int64_t batch_size = 0;
  int64_t tokens = 0;  // of a sample
};

// MODEL/LAYOUT of gpt_tiny, gpt_baby and gpt2, with AdamW, in the layouts of
// tools/bench/hybrid/cases.h.
std::vector<Case> GptCases(const GptSizes& sizes);

// Of `names`, "eager" and "compile", those that this layout has: one process,
// DistributedDataParallel, torch.distributed.pipelining, or
// DistributedDataParallel around its stages. Compiled ones may fail unless they
// are `wanted`.
std::vector<Peer> GptPeers(const Case& bench,
                           const std::vector<std::string>& names, bool wanted);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPT_CASES_H_
