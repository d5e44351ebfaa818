// Our hooks against those of PyTorch's DistributedDataParallel on two ranks.
// make_communication_hook_parity.py wrote down what those give.

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "gtest/gtest.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "tests/models/rounding.h"
#include "tests/parallel/comm_hooks/hook_driver.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kStart = 2;  // the first step that PowerSGD compresses

const DriverParameters& Parameters() {
  static const auto* const parameters =
      new DriverParameters{{"weight", {12, 10}},
                           {"conv", {6, 4, 3, 3}},
                           {"bias", {12}},
                           {"small", {3, 4}}};
  return *parameters;
}

// The script's.
at::Tensor Gradient(const std::string& name, int step, int rank,
                    at::IntArrayRef sizes) {
  const at::Tensor i = at::arange(c10::multiply_integers(sizes), at::kLong);
  const int64_t key =
      static_cast<int64_t>(name.size()) * 37 + step * 57 + rank * 101;
  const at::Tensor numbers = (i * i * 7 + i * (key + 13) + key) % 251 - 125;
  return (numbers.to(at::kFloat) / 47.0).view(sizes);
}

at::Tensor FirstQ(const std::string& name, int64_t columns, int64_t rank) {
  const at::Tensor i = at::arange(columns * rank, at::kLong);
  const at::Tensor numbers =
      (i * i * 5 + i * 3 + static_cast<int64_t>(name.size())) % 31 - 15;
  return (numbers.to(at::kFloat) / 16.0).view({columns, rank});
}

json Expected(const std::string& name) {
  std::ifstream file(
      "tests/parallel/comm_hooks/testdata/communication_hook_parity.json");
  return json::parse(file).at(name);
}

absl::Status Compare(const HookDriver& driver, const json& expected,
                     double tolerance) {
  for (const DriverParameter& each : Parameters()) {
    const at::Tensor wanted =
        at::tensor(expected.at(each.name).get<std::vector<double>>(),
                   at::kDouble)
            .view(each.sizes);
    const at::Tensor got = driver.gradient(each.name).to(at::kCPU, at::kDouble);
    if (at::allclose(got, wanted, /*rtol=*/0, /*atol=*/tolerance)) {
      continue;
    }
    return absl::InternalError(absl::StrCat(
        each.name, " is off by ", (got - wanted).abs().max().item<double>()));
  }
  return absl::OkStatus();
}

// Steps from `first` on; expected[0] is that of step `compared`.
absl::Status RunSteps(Communicator& world, const CommunicationHook& hook,
                      int first, int compared, const json& expected,
                      double tolerance) {
  HookDriver driver({Parameters()});
  const int end = compared + static_cast<int>(expected.size());
  for (int step = first; step < end; ++step) {
    driver.Fill([&](const std::string& name, at::IntArrayRef sizes) {
      return Gradient(name, step, world.rank(), sizes);
    });
    TANDEM_RETURN_IF_ERROR(driver.Reduce(hook, world));
    if (step < compared) continue;
    const absl::Status same =
        Compare(driver, expected[step - compared], tolerance);
    if (!same.ok()) {
      return absl::InternalError(
          absl::StrCat("step ", step, ": ", same.message()));
    }
  }
  return absl::OkStatus();
}

class CommunicationHookParityTest : public DeviceTypeTest {};

// On every processor: the gradients are quotients of integers, and what follows
// is IEEE's rounding to half precision, its half, and a sum of two.
TEST_P(CommunicationHookParityTest, HalfPrecisionHooksGivePyTorchsBits) {
  using Make = CommunicationHook (*)();
  const std::vector<std::pair<std::string, Make>> cases = {
      {"allreduce", AllReduceHook},
      {"fp16", Fp16CompressHook},
      {"bf16", Bf16CompressHook}};
  for (const auto& [name, make] : cases) {
    const json expected = Expected(name);
    const absl::Status status =
        RunDeviceRanks(2, [&, make = make](Communicator& world) {
          return RunSteps(world, make(), 0, 0, expected, /*tolerance=*/0);
        });
    EXPECT_TRUE(status.ok()) << name << ": " << status;
  }
}

// Five compressed steps, each with two products that sum up to 36 numbers, of
// up to 4 with the error that is fed back; an error in the direction of a
// column that is nearly another's grows, tenfold at most.
double PowerSgdTolerance() {
  return 10 * RoundingTolerance(at::kFloat, 5 * 2 * 36, 4);
}

void ExpectPyTorchsPowerSgd(const std::string& name, PowerSgdOptions options) {
  options.start_power_sgd_iter = kStart;
  const int64_t rank = options.matrix_approximation_rank;
  const json expected = Expected(name);
  const absl::Status status =
      RunDeviceRanks(2, [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(PowerSgd power_sgd, PowerSgd::Create(options));
        NamedTensors state = power_sgd.State();
        state.emplace_back("weight.q", FirstQ("weight", 10, rank));
        state.emplace_back("conv.q", FirstQ("conv", 36, rank));
        TANDEM_RETURN_IF_ERROR(power_sgd.LoadState(state));
        return RunSteps(world, power_sgd.Hook(), 0, kStart, expected,
                        PowerSgdTolerance());
      });
  EXPECT_TRUE(status.ok()) << name << ": " << status;
}

TEST_P(CommunicationHookParityTest, PowerSgdGivesPyTorchsNumbers) {
  PowerSgdOptions options;
  options.orthogonalization_epsilon = 0.5;
  ExpectPyTorchsPowerSgd("power_sgd_epsilon", options);
  options.orthogonalization_epsilon = 0;
  ExpectPyTorchsPowerSgd("power_sgd_rank1", options);
  options.matrix_approximation_rank = 2;
  ExpectPyTorchsPowerSgd("power_sgd_rank2", options);
  options.use_error_feedback = false;
  ExpectPyTorchsPowerSgd("power_sgd_no_feedback", options);
}

// PyTorch takes QR instead of Gram-Schmidt from rank 3 on.
TEST_P(CommunicationHookParityTest, PowerSgdOfRank3GivesPyTorchsNumbers) {
  PowerSgdOptions options;
  options.matrix_approximation_rank = 3;
  options.min_compression_rate = 1;
  ExpectPyTorchsPowerSgd("power_sgd_rank3", options);
}

TANDEM_ON_DEVICE_TYPES(CommunicationHookParityTest);

}  // namespace
}  // namespace tandem
