#include "tests/parallel/comm_hooks/power_sgd_ranks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/device_types.h"

namespace tandem {

const std::vector<DriverParameters>& PowerSgdBuckets() {
  static const auto* const buckets = new std::vector<DriverParameters>{
      {{"weight", {24, 17}}, {"bias", {24}}, {"small", {3, 4}}},
      {{"scalar", {}}, {"conv", {16, 5, 3, 3}, {45, 1, 15, 5}}},
      {{"plain", {13}}, {"row", {1, 50}}},
      {{"turned", {19, 23}, {1, 19}}, {"empty", {0, 4}}}};
  return *buckets;
}

const std::vector<std::string>& CompressedNames() {
  static const auto* const names =
      new std::vector<std::string>{"weight", "conv", "turned"};
  return *names;
}

PowerSgdOptions AtOnce(int64_t rank) {
  PowerSgdOptions options;
  options.matrix_approximation_rank = rank;
  options.start_power_sgd_iter = 0;
  options.min_compression_rate = 1;
  return options;
}

at::Tensor LowRank(int step, int who, int64_t rank, const std::string& name,
                   at::IntArrayRef sizes) {
  const int64_t rows = sizes.empty() ? 1 : sizes[0];
  int64_t columns = 1;
  for (size_t d = 1; d < sizes.size(); ++d) columns *= sizes[d];
  return at::matmul(Normal(step, -1, name, {rows, rank}).to(at::kDouble),
                    Normal(step, who, name, {rank, columns}).to(at::kDouble))
      .view(sizes);
}

at::Tensor MeanLowRank(int step, int ranks, int64_t rank,
                       const std::string& name, at::IntArrayRef sizes) {
  at::Tensor sum = at::zeros(sizes, at::kDouble);
  for (int who = 0; who < ranks; ++who) {
    sum.add_(LowRank(step, who, rank, name, sizes));
  }
  return sum / ranks;
}

absl::Status Close(const HookDriver& driver, const std::string& name,
                   const at::Tensor& expected, double tolerance) {
  const at::Tensor gradient = driver.gradient(name).to(at::kCPU, at::kDouble);
  if (at::allclose(gradient, expected.to(at::kCPU, at::kDouble), tolerance,
                   tolerance)) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(name, " is off by ",
                   (gradient - expected.cpu()).abs().max().item<double>()));
}

absl::Status RunPowerSgd(int n, const PowerSgdOptions& options,
                         const OnRank& fn, at::ScalarType dtype) {
  return RunDeviceRanks(n, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(PowerSgd power_sgd, PowerSgd::Create(options));
    HookDriver driver(PowerSgdBuckets(), dtype);
    return fn(world, power_sgd, driver);
  });
}

absl::Status ReduceNormal(int step, Communicator& world, PowerSgd& power_sgd,
                          HookDriver& driver) {
  FillNormal(step, world.rank(), &driver);
  TANDEM_RETURN_IF_ERROR(driver.Reduce(power_sgd.Hook(), world));
  return driver.CheckAlike(world);
}

at::Tensor StateTensor(const NamedTensors& state, const std::string& name) {
  for (const auto& each : state) {
    if (each.first == name) return each.second;
  }
  return {};
}

}  // namespace tandem
