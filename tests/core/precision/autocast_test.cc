#include "core/precision/autocast.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace tandem::autocast_test {
namespace {

constexpr c10::DeviceType kCpu = c10::DeviceType::CPU;

at::ScalarType DtypeOfProduct() {
  const at::Tensor x = at::ones({2, 2});
  return at::mm(x, x).scalar_type();
}

TEST(AutocastTest, ReachesLibTorchsOperatorsWhileItLives) {
  EXPECT_EQ(DtypeOfProduct(), at::kFloat);
  {
    const AutocastGuard guard(kCpu, at::kBFloat16);
    EXPECT_EQ(DtypeOfProduct(), at::kBFloat16);
    EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kBFloat16);
  }
  EXPECT_EQ(DtypeOfProduct(), at::kFloat);
  EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kFloat);
}

TEST(AutocastTest, ScopesNestAndPutBackWhatWas) {
  const AutocastGuard outer(kCpu, at::kBFloat16);
  {
    const AutocastGuard inner(kCpu, at::kHalf);
    EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kHalf);
  }
  EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kBFloat16);
}

TEST(AutocastTest, WithoutADtypeAllStaysAsItIs) {
  {
    const AutocastGuard none(kCpu, std::nullopt);
    EXPECT_FALSE(CurrentAutocast(kCpu).is_enabled);
  }
  const AutocastGuard outer(kCpu, at::kBFloat16);
  const AutocastGuard none(kCpu, std::nullopt);
  EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kBFloat16);
}

TEST(AutocastTest, LeavesDoublesAndIntegersAlone) {
  const AutocastGuard guard(kCpu, at::kBFloat16);
  EXPECT_EQ(AutocastDtype(kCpu, at::kDouble), at::kDouble);
  EXPECT_EQ(AutocastDtype(kCpu, at::kLong), at::kLong);
  EXPECT_EQ(AutocastDtype(kCpu, at::kHalf), at::kBFloat16);
}

TEST(AutocastTest, IsTheCallingThreadsOwn) {
  const AutocastGuard guard(kCpu, at::kBFloat16);
  at::ScalarType elsewhere = at::kBFloat16;
  std::thread([&] { elsewhere = AutocastDtype(kCpu, at::kFloat); }).join();
  EXPECT_EQ(elsewhere, at::kFloat);
}

}  // namespace
}  // namespace tandem::autocast_test
