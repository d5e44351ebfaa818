#include "parallel/data_parallel/scatter.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/testing/device_types.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"

namespace tandem::scatter_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ScatterTest : public DeviceTypeTest {
 protected:
  static std::vector<int64_t> Rows(int64_t samples, int devices) {
    const auto scattered =
        ScatterTensors({{"x", at::zeros({samples, 2})}}, Devices(devices), 0);
    EXPECT_TRUE(scattered.ok()) << scattered.status();
    int64_t first = 0;
    for (size_t i = 0; i < scattered->parts.size(); ++i) {
      EXPECT_EQ(scattered->parts[i][0].size(0), scattered->rows[i]);
      EXPECT_EQ(scattered->first_rows[i], first);
      first += scattered->rows[i];
    }
    return scattered->rows;
  }
};

// torch.chunk's.
TEST_P(ScatterTest, SizesOfParts) {
  EXPECT_THAT(Rows(8, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(Rows(7, 4), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(Rows(5, 4), ElementsAre(2, 2, 1));
  EXPECT_THAT(Rows(5, 2), ElementsAre(3, 2));
  EXPECT_THAT(Rows(3, 4), ElementsAre(1, 1, 1));
  EXPECT_THAT(Rows(1, 4), ElementsAre(1));
  EXPECT_THAT(Rows(0, 4), ElementsAre(0));
  EXPECT_THAT(Rows(6, 1), ElementsAre(6));
}

// PyTorch's test_scatter_cpu and test_scatter_gpu.
TEST_P(ScatterTest, IsDifferentiable) {
  for (const c10::Device from : {c10::Device(c10::kCPU), Devices(1)[0]}) {
    const at::Tensor x =
        at::arange(16., at::kDouble).view({4, 4}).to(from).requires_grad_(true);
    const auto parts = Scatter(x, Devices(2));
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(IsOn((*parts)[i], Devices(2)[i]));
      EXPECT_TRUE((*parts)[i].cpu().equal(
          x.cpu().narrow(0, 2 * static_cast<int64_t>(i), 2)));
    }
    (*parts)[0].backward(at::ones_like((*parts)[0]).mul(2));
    EXPECT_TRUE(
        x.grad().cpu().equal(at::cat({at::ones({2, 4}, at::kDouble).mul(2),
                                      at::zeros({2, 4}, at::kDouble)})));
  }
}

TEST_P(ScatterTest, AnyDimension) {
  const at::Tensor x = at::arange(12.).view({2, 6});
  for (const int64_t dim : {1, -1}) {
    const auto parts = Scatter(x, Devices(3), dim);
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->size(), 3u);
    EXPECT_TRUE((*parts)[1].cpu().equal(x.narrow(1, 2, 2)));
  }
}

TEST_P(ScatterTest, AnyNesting) {
  using Value = std::tuple<std::vector<at::Tensor>,
                           std::map<std::string, at::Tensor>, int, std::string>;
  const Value value = {{at::arange(4.), at::arange(8.).view({4, 2})},
                       {{"mask", at::arange(4.).neg()}},
                       7,
                       "word"};
  const auto parts = Scatter(value, Devices(2));
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  const auto& [list, dict, number, word] = (*parts)[1];
  EXPECT_TRUE(list[0].cpu().equal(at::arange(2., 4.)));
  EXPECT_TRUE(list[1].cpu().equal(at::arange(4., 8.).view({2, 2})));
  EXPECT_TRUE(dict.at("mask").cpu().equal(at::arange(2., 4.).neg()));
  EXPECT_EQ(number, 7);
  EXPECT_EQ(word, "word");
}

TEST_P(ScatterTest, ScalarsAndUndefinedTensorsGoToAll) {
  const std::vector<at::Tensor> value = {at::arange(5.), at::ones({}), {}};
  const auto parts = Scatter(value, Devices(2));
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*parts)[i][1].item<float>(), 1);
    EXPECT_TRUE(IsOn((*parts)[i][1], Devices(2)[i]));
    EXPECT_FALSE((*parts)[i][2].defined());
  }
  EXPECT_EQ(Scatter(at::ones({}), Devices(3))->size(), 3u);
  EXPECT_EQ(Scatter(std::string("word"), Devices(3))->size(), 3u);
}

TEST_P(ScatterTest, TensorsOfDifferentBatchesAreNamed) {
  const std::vector<at::Tensor> value = {at::zeros({8, 2}), at::zeros({2})};
  const auto parts = Scatter(value, Devices(4));
  EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parts.status().message()),
              AllOf(HasSubstr("input[0], Float [8, 2], into 4 parts"),
                    HasSubstr("input[1], Float [2], into 2")));
  // As many parts of other sizes are the module's affair.
  EXPECT_TRUE(
      Scatter(std::vector{at::zeros({8}), at::zeros({5})}, Devices(2)).ok());
}

TEST_P(ScatterTest, AMissingDimensionIsNamed) {
  const auto parts = Scatter(std::vector{at::zeros({8})}, Devices(2), 1);
  EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parts.status().message()),
              HasSubstr("input[0] is Float [8] and cannot be cut along "
                        "dimension 1"));
}

TANDEM_ON_DEVICE_TYPES(ScatterTest);

}  // namespace
}  // namespace tandem::scatter_test
