#include "parallel/data_parallel/tensor_fields.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::tensor_fields_test {

struct Sample {
  at::Tensor tokens;
  int length = 0;
  std::vector<at::Tensor> masks;
};

}  // namespace tandem::tensor_fields_test

namespace tandem {

template <>
struct TensorFields<tensor_fields_test::Sample>
    : TensorMembers<tensor_fields_test::Sample,
                    &tensor_fields_test::Sample::tokens,
                    &tensor_fields_test::Sample::masks> {};

}  // namespace tandem

namespace tandem::tensor_fields_test {
namespace {

using testing::ElementsAre;

at::Tensor Number(int64_t n) { return at::arange(n, n + 1); }

template <typename T>
std::vector<std::string> PathsOf(const T& value) {
  std::vector<std::string> paths;
  int64_t next = 0;
  for (const auto& [path, tensor] : TensorsOf(value, "x")) {
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
  for (const auto& each : TensorsOf(value, "")) {
    others.push_back(each.second.add(10));
  }
  ReplaceTensors(value, others);
  EXPECT_EQ(value.first[0].tokens.item<int64_t>(), 10);
  EXPECT_EQ(value.first[0].masks[0].item<int64_t>(), 11);
  EXPECT_EQ(value.first[1].tokens.item<int64_t>(), 12);
  EXPECT_EQ(value.first[1].length, 4);
  EXPECT_EQ(value.second.item<int64_t>(), 13);
}

}  // namespace
}  // namespace tandem::tensor_fields_test
