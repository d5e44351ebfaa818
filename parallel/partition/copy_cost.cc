#include "parallel/partition/copy_cost.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/torch_status.h"
#include "parallel/partition/device_stopwatch.h"

namespace tandem {
namespace {

constexpr int64_t kSmall = 4 << 10;
constexpr int64_t kBig = 4 << 20;
constexpr int kRuns = 7;

double SecondsOfCopy(const at::Tensor& source, at::Tensor& destination) {
  std::vector<double> runs;
  DeviceStopwatch clock(destination.device());
  for (int run = 0; run < kRuns; ++run) {
    clock.Lap();
    destination.copy_(source, /*non_blocking=*/true);
    DeviceStopwatch::Await(source.device());
    runs.push_back(clock.Lap());
  }
  return UpperMedian(std::move(runs));
}

double SecondsFor(int64_t bytes, c10::Device from, c10::Device to) {
  const at::Tensor source =
      at::zeros({bytes}, at::TensorOptions(from).dtype(at::kByte));
  at::Tensor destination = at::empty_like(source, source.options().device(to));
  DeviceStopwatch::Await(from);
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
