// Batches cut over devices and joined again, and the tensors within values.

#include "parallel/data_parallel/scatter_gather.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"

namespace tandem::scatter_gather_test {

struct Sample {
  at::Tensor tokens;
  int length = 0;
  std::vector<at::Tensor> masks;
};

}  // namespace tandem::scatter_gather_test

namespace tandem {

template <>
struct TensorFields<scatter_gather_test::Sample>
    : TensorMembers<scatter_gather_test::Sample,
                    &scatter_gather_test::Sample::tokens,
                    &scatter_gather_test::Sample::masks> {};

}  // namespace tandem

namespace tandem::scatter_gather_test {
namespace {

using testing::ElementsAre;

at::Tensor Number(int64_t n) { return at::arange(n, n + 1); }

template <typename T>
std::vector<std::string> PathsOf(const T& value) {
  std::vector<std::string> paths;
  int64_t next = 0;
  for (const auto& [path, tensor] : FindTensors(value, "x")) {
    paths.push_back(path);
    EXPECT_EQ(tensor.template item<int64_t>(), next++) << path;
  }
  return paths;
}

TEST(TensorFields, OfEachKind) {
  EXPECT_THAT(PathsOf(Number(0)), ElementsAre("x"));
  EXPECT_THAT(PathsOf(std::vector{Number(0), Number(1)}),
              ElementsAre("x[0]", "x[1]"));
  EXPECT_THAT(PathsOf(std::array<at::Tensor, 1>{Number(0)}),
              ElementsAre("x[0]"));
  EXPECT_THAT(PathsOf(std::make_pair(Number(0), Number(1))),
              ElementsAre("x.first", "x.second"));
  EXPECT_THAT(PathsOf(std::make_tuple(1, Number(0), std::string("no"))),
              ElementsAre("x[1]"));
  EXPECT_THAT(PathsOf(std::optional<at::Tensor>(Number(0))), ElementsAre("x"));
  EXPECT_THAT(PathsOf(std::optional<at::Tensor>()), ElementsAre());
  EXPECT_THAT(
      PathsOf(std::map<int, at::Tensor>{{7, Number(1)}, {3, Number(0)}}),
      ElementsAre("x[3]", "x[7]"));
  EXPECT_THAT(PathsOf(std::unordered_map<std::string, at::Tensor>{
                  {"b", Number(1)}, {"a", Number(0)}, {"c", Number(2)}}),
              ElementsAre("x['a']", "x['b']", "x['c']"));
  EXPECT_THAT(PathsOf(std::vector<bool>{true}), ElementsAre());
  EXPECT_THAT(PathsOf(std::vector<int>{1, 2}), ElementsAre());
  EXPECT_THAT(PathsOf(Sample{Number(0), 3, {Number(1)}}),
              ElementsAre("x.0", "x.1[0]"));
}

TEST(TensorFields, AreReplacedInTheSameOrder) {
  std::pair<std::vector<Sample>, at::Tensor> value = {
      {{Number(0), 3, {Number(1)}}, {Number(2), 4, {}}}, Number(3)};
  std::vector<at::Tensor> others;
  for (const auto& each : FindTensors(value, "")) {
    others.push_back(each.second.add(10));
  }
  ReplaceTensors(value, others);
  EXPECT_EQ(value.first[0].tokens.item<int64_t>(), 10);
  EXPECT_EQ(value.first[0].masks[0].item<int64_t>(), 11);
  EXPECT_EQ(value.first[1].tokens.item<int64_t>(), 12);
  EXPECT_EQ(value.first[1].length, 4);
  EXPECT_EQ(value.second.item<int64_t>(), 13);
}

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
  EXPECT_THAT(parts.status(),
              InvalidArgument("input[0], Float [8, 2], into 4 parts",
                              "input[1], Float [2], into 2"));
  // Equally many parts of other sizes are the module's affair.
  EXPECT_TRUE(
      Scatter(std::vector{at::zeros({8}), at::zeros({5})}, Devices(2)).ok());
}

TEST_P(ScatterTest, AMissingDimensionIsNamed) {
  const auto parts = Scatter(std::vector{at::zeros({8})}, Devices(2), 1);
  EXPECT_THAT(parts.status(),
              InvalidArgument("input[0] is Float [8] and cannot be cut along "
                              "dimension 1"));
}

TANDEM_ON_DEVICE_TYPES(ScatterTest);

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
  EXPECT_THAT(dicts.status(),
              InvalidArgument("replica 0 gave output['a']",
                              "replica 1 gave output['a'], output['b']"));
  const auto undefined = Gather(std::vector<at::Tensor>{x, {}}, Devices(1)[0]);
  EXPECT_THAT(undefined.status(), Says("undefined in one of them alone"));
}

TEST_P(GatherTest, SizesThatDoNotFitAreNamed) {
  const auto joined = Gather(std::vector{std::make_pair(1, at::ones({1, 2})),
                                         std::make_pair(1, at::ones({1, 3}))},
                             Devices(1)[0]);
  EXPECT_THAT(joined.status(),
              InvalidArgument("gathering output.second: Sizes of tensors"));
}

TANDEM_ON_DEVICE_TYPES(GatherTest);

}  // namespace
}  // namespace tandem::scatter_gather_test
