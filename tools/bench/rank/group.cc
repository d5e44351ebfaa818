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

absl::Status ChooseKernels(bool measured, const std::string& rendezvous,
                           Communicator* world, MeasuredKernels* chosen) {
  if (!measured) chosen->kernels.reset();
  if (!measured || chosen->kernels != nullptr) return absl::OkStatus();
  if (world == nullptr && chosen->alone == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(chosen->alone, ConnectRanks("", 0, 1, "shm"));
  }
  TANDEM_ASSIGN_OR_RETURN(
      chosen->kernels,
      JobKernels::Measure(KernelCache(rendezvous),
                          world == nullptr ? *chosen->alone : *world));
  return absl::OkStatus();
}

}  // namespace tandem
