#include "parallel/ddp/model_state.h"

#include <ATen/ops/full.h>
#include <c10/core/Device.h>

#include <chrono>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gtest/gtest.h"

namespace tandem::model_state_test {
namespace {

class ModelStateTest : public DeviceTypeTest {};

at::Tensor Full(double value, c10::Device device, at::ScalarType dtype) {
  return at::full({3}, value, at::TensorOptions().dtype(dtype).device(device));
}

// As text "sim:10" comes before "sim:9": a rank that owns both must send and
// receive in the order of the others all the same.
TEST_P(ModelStateTest, BroadcastGoesByPlaceNotByTheDevicesName) {
  const std::vector<c10::Device> devices = Devices(12);
  const std::vector<std::pair<int, int>> owned = {{0, 1}, {9, 10}, {11, 8}};
  CommunicatorOptions options;
  options.backend = TestBackend();
  options.timeout = std::chrono::seconds(30);
  const auto with_devices = [&] {
    CommunicatorOptions mine = WithTestDevice(options, 2);
    if (mine.device.has_value()) {
      const auto [first, second] = owned[ThisThreadsRank()];
      mine.device = devices[first];
      mine.further_devices = {devices[second]};
    }
    return mine;
  };
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        const auto [first, second] = owned[world.rank()];
        const double base = 100. * world.rank();
        std::vector<at::Tensor> tensors;
        for (const auto& [place, dtype] :
             std::vector<std::pair<int, at::ScalarType>>{{first, at::kFloat},
                                                         {second, at::kFloat},
                                                         {second, at::kLong},
                                                         {first, at::kFloat},
                                                         {first, at::kLong}}) {
          tensors.push_back(Full(base + static_cast<double>(tensors.size()),
                                 devices[place], dtype));
        }
        TANDEM_RETURN_IF_ERROR(BroadcastFrom(0, tensors, world));
        for (size_t i = 0; i < tensors.size(); ++i) {
          EXPECT_TRUE(tensors[i].cpu().equal(
              Full(static_cast<double>(i), at::kCPU, tensors[i].scalar_type())))
              << "tensor " << i << " of rank " << world.rank() << ": "
              << tensors[i].cpu();
        }
        return absl::OkStatus();
      },
      with_devices, options.timeout));
}

TEST_P(ModelStateTest, ADifferenceIsNamedWithItsRankAndTensor) {
  ExpectOk(RunDeviceRanks(3, [&](Communicator& world) -> absl::Status {
    const NamedTensors model = {
        {"a", Full(1, TestDevice(), at::kFloat)},
        {"b",
         Full(1, TestDevice(), world.rank() == 2 ? at::kDouble : at::kFloat)}};
    const absl::Status compared = CheckSameModel(model, world);
    EXPECT_EQ(compared.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(compared.message().find(
                  "the model of rank 2 differs from that of rank 0: tensor "
                  "1 is b: Double [3]"),
              absl::string_view::npos)
        << compared;
    return absl::OkStatus();
  }));
}

TEST_P(ModelStateTest, AFloatOfAnotherPrecisionIsConverted) {
  const NamedTensors model = {{"a", Full(0, TestDevice(), at::kBFloat16)},
                              {"b", Full(0, TestDevice(), at::kFloat)},
                              {"n", Full(0, TestDevice(), at::kLong)}};
  NamedTensors state = {{"a", Full(1.25, at::kCPU, at::kFloat)},
                        {"b", Full(2.5, at::kCPU, at::kBFloat16)},
                        {"n", Full(3, at::kCPU, at::kLong)}};
  ASSERT_TRUE(CopyModelState(state, model).ok());
  EXPECT_EQ(model[0].second.scalar_type(), at::kBFloat16);
  EXPECT_EQ(model[0].second.cpu()[2].item<double>(), 1.25);
  EXPECT_EQ(model[1].second.cpu()[2].item<double>(), 2.5);

  state[2].second = Full(3, at::kCPU, at::kFloat);
  const absl::Status refused = CopyModelState(state, model);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("n: expected Long [3], got Float [3]"),
            absl::string_view::npos)
      << refused;
}

TANDEM_ON_DEVICE_TYPES(ModelStateTest);

}  // namespace
}  // namespace tandem::model_state_test
