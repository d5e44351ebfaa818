// The communicator of one side's ranks.

#ifndef TANDEM_TOOLS_BENCH_RANK_GROUP_H_
#define TANDEM_TOOLS_BENCH_RANK_GROUP_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/autotune/job_kernels.h"
#include "core/comm/communicator.h"

namespace tandem {

// They meet through the file `rendezvous`, which does not exist yet; one rank
// needs none.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectRanks(
    const std::string& rendezvous, int rank, int ranks,
    const std::string& backend);

// The file of kernels of ranks that meet there.
std::string KernelCache(const std::string& rendezvous);

struct MeasuredKernels {
  std::unique_ptr<Communicator> alone;  // of one rank, which needs a group
  std::unique_ptr<JobKernels> kernels;
};

// Chooses kernels as train does: products by the kernel that is faster here
// (`measured`), kept in that file; or those of a rule, which --reproducible
// has. What `chosen` held before goes on or ends. `world` may be null, for one
// rank. Collective.
absl::Status ChooseKernels(bool measured, const std::string& rendezvous,
                           Communicator* world, MeasuredKernels* chosen);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RANK_GROUP_H_
