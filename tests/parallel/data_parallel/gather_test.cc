#include "parallel/data_parallel/gather.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/testing/device_types.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"

namespace tandem::gather_test {
namespace {

using testing::HasSubstr;

class GatherTest : public DeviceTypeTest {};

// PyTorch's test_gather_cpu and test_gather_gpu.
TEST_P(GatherTest, IsDifferentiable) {
  for (const c10::Device to : {c10::Device(c10::kCPU), Devices(2)[1]}) {
    const at::Tensor a =
        at::arange(8.).view({2, 4}).to(Devices(2)[0]).requires_grad_(true);
    const at::Tensor b =
        at::arange(12.).view({3, 4}).to(Devices(2)[1]).requires_grad_(true);
    const auto joined = Gather(std::vector{a, b}, to);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_TRUE(IsOn(*joined, to));
    EXPECT_TRUE(joined->narrow(0, 0, 2).cpu().equal(a.cpu()));
    EXPECT_TRUE(joined->narrow(0, 2, 3).cpu().equal(b.cpu()));
    const at::Tensor grad = at::arange(20.).view({5, 4});
    joined->backward(grad.to(to));
    EXPECT_TRUE(a.grad().cpu().equal(grad.narrow(0, 0, 2)));
    EXPECT_TRUE(b.grad().cpu().equal(grad.narrow(0, 2, 3)));
  }
}

TEST_P(GatherTest, ScalarsBecomeAVector) {
  std::vector<at::Tensor> scalars;
  for (int i = 0; i < 2; ++i) {
    scalars.push_back(at::scalar_tensor(i + 3.)
                          .to(Devices(2)[static_cast<size_t>(i)])
                          .requires_grad_(true));
  }
  // Along whatever dimension the others are joined.
  for (const int64_t dim : {0, 1}) {
    const auto joined = Gather(scalars, Devices(1)[0], dim);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_TRUE(joined->cpu().equal(at::arange(3., 5.)));
  }
  Gather(scalars, Devices(1)[0])
      ->backward(at::arange(5., 7.).to(Devices(1)[0]));
  EXPECT_EQ(scalars[0].grad().item<float>(), 5);
  EXPECT_EQ(scalars[1].grad().item<float>(), 6);
}

TEST_P(GatherTest, AnyNesting) {
  using Value = std::pair<std::map<std::string, at::Tensor>,
                          std::tuple<at::Tensor, std::vector<at::Tensor>, int>>;
  std::vector<Value> values;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = at::full({2, 1}, i + 1.).to(Devices(3)[i]);
    values.push_back({{{"a", x}}, {x.neg(), {x.mul(10), {}}, i}});
  }
  const auto joined = Gather(values, Devices(3)[0], /*dim=*/1);
  ASSERT_TRUE(joined.ok()) << joined.status();
  const at::Tensor row = at::arange(1., 4.).expand({2, 3});
  const auto& [tensor, list, number] = joined->second;
  EXPECT_TRUE(joined->first.at("a").cpu().equal(row));
  EXPECT_TRUE(tensor.cpu().equal(row.neg()));
  EXPECT_TRUE(list[0].cpu().equal(row * 10));
  EXPECT_FALSE(list[1].defined());
  EXPECT_EQ(number, 0);  // the first one's
}

// PyTorch's test_gather_different_len_dicts.
TEST_P(GatherTest, OutputsOfDifferentKindsAreNamed) {
  const at::Tensor x = at::ones({1, 2});
  using Dict = std::map<std::string, at::Tensor>;
  const auto dicts = Gather(std::vector<Dict>{{{"a", x}}, {{"b", x}, {"a", x}}},
                            Devices(1)[0]);
  EXPECT_EQ(dicts.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(dicts.status().message()),
              AllOf(HasSubstr("replica 0 gave output['a']"),
                    HasSubstr("replica 1 gave output['a'], output['b']")));
  const auto undefined = Gather(std::vector<at::Tensor>{x, {}}, Devices(1)[0]);
  EXPECT_THAT(std::string(undefined.status().message()),
              HasSubstr("undefined in one of them alone"));
}

TEST_P(GatherTest, SizesThatDoNotFitAreNamed) {
  const auto joined = Gather(std::vector{std::make_pair(1, at::ones({1, 2})),
                                         std::make_pair(1, at::ones({1, 3}))},
                             Devices(1)[0]);
  EXPECT_EQ(joined.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(joined.status().message()),
              HasSubstr("gathering output.second: Sizes of tensors"));
}

TANDEM_ON_DEVICE_TYPES(GatherTest);

}  // namespace
}  // namespace tandem::gather_test
