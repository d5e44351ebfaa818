#include "tools/bench/rank/group.h"

#include <chrono>

#include "core/launch/launch.h"

namespace tandem {
namespace {

constexpr std::chrono::minutes kTimeout(2);

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRanks(
    const std::string& rendezvous, int rank, int ranks,
    const std::string& backend) {
  Launch launch;
  launch.rank = launch.local_rank = rank;
  launch.world_size = launch.local_world_size = ranks;
  if (ranks > 1) {
    launch.rendezvous.kind = Rendezvous::Kind::kFile;
    launch.rendezvous.path = rendezvous;
  }
  CommunicatorOptions communication;
  communication.timeout = kTimeout;
  communication.backend = backend;
  return Communicator::ForLaunch(launch, communication);
}

}  // namespace tandem
