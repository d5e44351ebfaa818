#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceType.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/device/memory_category.h"
#include "core/model/layer_list.h"
#include "core/sim/testing.h"
#include "gtest/gtest.h"

namespace tandem::move_layers_test {
namespace {

// Says under which category it was moved.
class Counted : public torch::nn::Module {
 public:
  explicit Counted(std::vector<MemoryCategory>* moves) : moves_(moves) {
    register_parameter("weight", at::ones({2}));
    register_buffer("count", at::zeros({}));
  }

  void to(torch::Device device, bool non_blocking) override {
    moves_->push_back(CurrentMemoryCategory());
    Module::to(device, non_blocking);
  }

 private:
  std::vector<MemoryCategory>* const moves_;
};

Layer CountedLayer(const std::string& name,
                   std::vector<MemoryCategory>* moves) {
  return {name, std::make_shared<Counted>(moves), nullptr};
}

TEST(MoveLayersTest, ParametersAndBuffersGoAndCountAsParameters) {
  std::vector<MemoryCategory> moves;
  const LayerList layers = {CountedLayer("a", &moves),
                            {"no module", nullptr, nullptr},
                            CountedLayer("b", &moves)};
  const c10::Device device = SimDevices(2)[1];
  ASSERT_TRUE(MoveLayers(layers, device).ok());
  EXPECT_EQ(moves, std::vector<MemoryCategory>(2, MemoryCategory::kParameters));
  EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kOther);
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    EXPECT_EQ(layer.module->parameters()[0].device(), device) << layer.name;
    EXPECT_EQ(layer.module->buffers()[0].device(), device) << layer.name;
  }
}

TEST(MoveLayersTest, AnErrorNamesTheLayer) {
  std::vector<MemoryCategory> moves;
  const LayerList layers = {{"no module", nullptr, nullptr},
                            CountedLayer("second", &moves)};
  // No device of this kind in any build of ours.
  const absl::Status status = MoveLayers(layers, c10::Device(c10::kXLA, 0));
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "moving layer second"))
      << status;
}

TEST(MoveLayersTest, NoLayers) {
  EXPECT_TRUE(MoveLayers({}, c10::Device(c10::kCPU)).ok());
}

}  // namespace
}  // namespace tandem::move_layers_test
