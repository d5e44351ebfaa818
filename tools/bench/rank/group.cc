#include "tools/bench/rank/group.h"

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/autotune/choice_file.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "core/device/device.h"
#include "core/launch/launch.h"
#include "core/program/process.h"
#include "core/sim/sim.h"
#include "models/functions/matrix_product.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

constexpr double kMib = 1 << 20;

int64_t PeakBytes(c10::Device device) {
  if (!device.is_cuda())
    return sim::DeviceMemoryStatistics(device.index()).peak.total;
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

namespace {

// The best rates, in 1e9 operations a second, of the float32 product of two
// 1024 x 1024 matrices, with this process's threads.
struct GemmRates {
  double mkl;      // at::mm's
  double one_dnn;  // MatrixProduct's
};

constexpr int64_t kSize = 1024;

double BestGflops(absl::FunctionRef<void()> multiply) {
  constexpr int kRepeats = 20;
  double best_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const Usage before = Usage::Now();
    multiply();
    best_ms = std::min(best_ms, (Usage::Now() - before).wall_ms);
  }
  return 2.0 * kSize * kSize * kSize / best_ms / 1e6;
}

GemmRates MeasureGemm() {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kSize, kSize});
  const at::Tensor b = at::ones({kSize, kSize});
  return {BestGflops([&] { at::mm(a, b); }),
          BestGflops([&] { MatrixProduct(a, b); })};
}

// Median of several all-reduces of `numel` float32 numbers, in milliseconds.
// Collective.
absl::StatusOr<double> AllReduceMs(Communicator& group, int64_t numel) {
  constexpr int kRepeats = 9;
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor buffer,
                          NewGroupBuffer(group, numel, at::kFloat));
  std::vector<double> times;
  for (int i = 0; i <= kRepeats; ++i) {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    const Usage before = Usage::Now();
    TANDEM_RETURN_IF_ERROR(group.AllReduceSum(buffer));
    // The first touches the memory.
    if (i > 0) times.push_back((Usage::Now() - before).wall_ms);
  }
  return Median(times);
}

}  // namespace

using nlohmann::json;

json GemmLimits() {
  const GemmRates rates = MeasureGemm();
  return {{"mkl_gflops", rates.mkl}, {"one_dnn_gflops", rates.one_dnn}};
}

absl::StatusOr<json> AllReduceLimits(Communicator& world, int64_t numel,
                                     const std::string& rendezvous) {
  TANDEM_ASSIGN_OR_RETURN(const double ms, AllReduceMs(world, numel));
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Communicator> gloo,
      ConnectRanks(rendezvous, world.rank(), world.size(), "gloo"));
  TANDEM_ASSIGN_OR_RETURN(const double gloo_ms, AllReduceMs(*gloo, numel));
  return json{{"ms", ms}, {"gloo_ms", gloo_ms}};
}

namespace {

// How many questions on products, or on images, have that answer.
int64_t CountChoices(const Choices& choices, bool on_products,
                     absl::string_view answer) {
  return std::count_if(choices.begin(), choices.end(), [&](const auto& choice) {
    return absl::StrContains(choice.first, ", product ") == on_products &&
           choice.second == answer;
  });
}

std::string DescribeImageKernels(const Choices& choices) {
  const int64_t channels_last = CountChoices(choices, false, "channels_last");
  const int64_t contiguous = CountChoices(choices, false, "contiguous");
  if (channels_last + contiguous == 0) return "";
  return absl::StrCat("; images channels-last in ", channels_last, " of ",
                      channels_last + contiguous, " cases");
}

}  // namespace

std::string DescribeKernels(const std::string& dtype,
                            const std::string& cache) {
  const auto file = ChoiceFile::Open(cache);
  const auto chosen = file.ok() ? (*file)->Read() : file.status();
  const std::string others =
      absl::StrCat(chosen.ok() ? DescribeImageKernels(*chosen) : "", "; ",
                   at::get_cpu_capability(), " in other kernels");
  if (dtype == "bf16") {
    return absl::StrCat("products of bf16: oneDNN",
                        HasWideProduct() ? ", sums kept in fp32" : "", others);
  }
  if (!chosen.ok()) return absl::StrCat("products: by rule", others);
  return absl::StrCat("products: MKL for ", CountChoices(*chosen, true, "mkl"),
                      " shapes, oneDNN for ",
                      CountChoices(*chosen, true, "onednn"),
                      ", as timed; smaller ones MKL", others);
}

}  // namespace tandem
