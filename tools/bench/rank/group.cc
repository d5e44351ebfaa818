#include "tools/bench/rank/group.h"

#include <chrono>

#include "core/base/status_macros.h"
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

std::string KernelCache(const std::string& rendezvous) {
  return rendezvous + ".kernels";
}

absl::StatusOr<MeasuredKernels> MeasureKernels(const std::string& rendezvous,
                                               Communicator* world) {
  MeasuredKernels measured;
  if (world == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(measured.alone, ConnectRanks("", 0, 1, "shm"));
    world = measured.alone.get();
  }
  TANDEM_ASSIGN_OR_RETURN(measured.kernels,
                          JobKernels::Measure(KernelCache(rendezvous), *world));
  return measured;
}

}  // namespace tandem
