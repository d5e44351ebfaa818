#include "parallel/partition/copy_cost.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/base/torch_status.h"

namespace tandem {
namespace {

constexpr int64_t kSmall = 4 << 10;
constexpr int64_t kBig = 4 << 20;
constexpr int kRuns = 7;

void Synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type())
      .synchronizeDevice(std::max<c10::DeviceIndex>(device.index(), 0));
}

double SecondsOfCopy(const at::Tensor& source, at::Tensor& destination) {
  std::vector<double> runs;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    destination.copy_(source, /*non_blocking=*/true);
    Synchronize(source.device());
    Synchronize(destination.device());
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    runs.push_back(took.count());
  }
  std::nth_element(runs.begin(), runs.begin() + kRuns / 2, runs.end());
  return runs[kRuns / 2];
}

double SecondsFor(int64_t bytes, c10::Device from, c10::Device to) {
  const at::Tensor source =
      at::zeros({bytes}, at::TensorOptions(from).dtype(at::kByte));
  at::Tensor destination = at::empty_like(source, source.options().device(to));
  Synchronize(from);
  return SecondsOfCopy(source, destination);
}

}  // namespace

absl::StatusOr<SendingCost> MeasureCopy(c10::Device from, c10::Device to) {
  return CatchTorchOr([&] {
    const double small = SecondsFor(kSmall, from, to);
    const double big = SecondsFor(kBig, from, to);
    SendingCost cost;
    cost.seconds_per_byte = std::max(0.0, big - small) / (kBig - kSmall);
    cost.seconds_per_message =
        std::max(0.0, small - cost.seconds_per_byte * kSmall);
    return cost;
  });
}

}  // namespace tandem
