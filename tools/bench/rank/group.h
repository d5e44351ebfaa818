// The communicator of one side's ranks.

#ifndef TANDEM_TOOLS_BENCH_RANK_GROUP_H_
#define TANDEM_TOOLS_BENCH_RANK_GROUP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"

namespace tandem {

// They meet through the file `rendezvous`, which does not exist yet; one rank
// needs none.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectRanks(
    const std::string& rendezvous, int rank, int ranks,
    const std::string& backend);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RANK_GROUP_H_
