#include "tools/bench/rank/group.h"

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/device/device.h"
#include "core/launch/launch.h"
#include "core/program/process.h"
#include "core/sim/sim.h"

namespace tandem {
namespace {

constexpr double kMib = 1 << 20;

int64_t PeakBytes(c10::Device device) {
  if (!device.is_cuda()) return sim::BooksOf(device.index()).peak.total;
  const auto stats =
      at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto whole =
      static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return stats.allocated_bytes[whole].peak;
}

constexpr std::chrono::minutes kTimeout(2);

}  // namespace

absl::StatusOr<c10::Device> PrepareDevice(const std::string& name,
                                          bool allow_tf32) {
  if (name == "sim") {
    SimOptions options;
    options.devices = 1;
    TANDEM_RETURN_IF_ERROR(EnableSim(options));
  }
  TANDEM_ASSIGN_OR_RETURN(const c10::DeviceType type, ParseDeviceType(name));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<c10::Device> devices,
                          DevicesOf(DeviceRequest(), type));
  at::globalContext().setAllowTF32CuBLAS(allow_tf32);
  at::globalContext().setAllowTF32CuDNN(allow_tf32);
  return devices.front();
}

void PlaceBatches(c10::Device device, Inputs& inputs) {
  for (Batch& batch : inputs.batches) {
    batch.inputs = batch.inputs.to(device);
    batch.targets = batch.targets.to(device);
  }
}

void WaitFor(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

double PeakMib(c10::Device device) {
  if (device.is_cpu()) return PeakRssMib();
  return static_cast<double>(PeakBytes(device)) / kMib;
}

std::string DescribeDevice(const std::string& name, bool allow_tf32) {
  return absl::StrCat(name, allow_tf32 ? ", TF32 allowed" : ", no TF32");
}

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
