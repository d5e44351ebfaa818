// Cases: a workload in a layout of processes and devices, and the settings
// among which each side chooses.

#ifndef TANDEM_TOOLS_BENCH_CASE_CASE_H_
#define TANDEM_TOOLS_BENCH_CASE_CASE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/setting.h"
#include "tools/bench/case/workload.h"

namespace tandem {

// Data x pipe.
struct Layout {
  int replicas = 1;
  int pipe = 1;     // ranks of one replica
  int devices = 1;  // of one rank: cores, a thread each

  int ranks() const { return replicas * pipe; }
  int devices_of_replica() const { return pipe * devices; }

  // The same with a process for each device, as the peers have it.
  Layout OverRanks() const { return {replicas, pipe * devices, 1}; }
};

struct Case {
  // MODEL, MODEL/SCHEDULE or MODEL/LAYOUT, and ":bf16" if it is that.
  std::string name;
  Workload workload;
  Layout layout;               // tandem's
  std::vector<Setting> ours;   // tandem's
  std::vector<Setting> peers;  // those of the peer that has several
};

// The cases of `all` with these names, in the order of `all`; "MODEL" stands
// for all of a model's. All of them for an empty list. InvalidArgument for an
// unknown name lists those that are known.
absl::StatusOr<std::vector<Case>> CasesNamed(
    const std::vector<Case>& all, const std::vector<std::string>& names);

// Each in each of these dtypes ("fp32", "bf16"), those of one model together.
// InvalidArgument for another.
absl::StatusOr<std::vector<Case>> InDtypes(
    const std::vector<Case>& cases, const std::vector<std::string>& dtypes);

// Groups of cases that follow each other and have the same model and dtype,
// which share processes or files.
std::vector<std::vector<Case>> ByModel(const std::vector<Case>& cases);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CASE_CASE_H_
