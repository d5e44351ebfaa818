// Cases of pipelines: each workload under each schedule.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_CASES_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_CASES_H_

#include <string>
#include <vector>

#include "tools/bench/case/case.h"

namespace tandem {

// MODEL/SCHEDULE: mlp_deep (batch 128), gpt_tiny (batch 8), resnet18 (3x64x64,
// batch 32), each under every schedule of parallel/schedule/schedules.h, with
// fused SGD, over the devices of one rank. Peers' settings are those of
// torch.distributed.pipelining's nearest schedule. Zero bubble has one that
// works over Gloo: it stands for ZB-V too.
std::vector<Case> PipelineCases(int devices);

// The peer's schedules that are tried for themselves, because they have failed:
// by its names.
std::vector<std::string> UnreliablePeerSchedules();
// The settings of such a schedule.
std::vector<Setting> UnreliableSettings(const std::string& schedule,
                                        const Workload& workload);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_CASES_H_
