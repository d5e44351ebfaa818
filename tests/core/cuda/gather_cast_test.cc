// Gather and cast against ATen's conversion. Needs a GPU: without one it says
// so.

#include "core/cuda/gather_cast.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

struct Case {
  at::ScalarType dtype;
  GradientType type;
};

class GatherCastTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
      GTEST_SKIP() << "there is no GPU";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Types, GatherCastTest,
    testing::Values(Case{at::kFloat, GradientType::kFloat32},
                    Case{at::kBFloat16, GradientType::kBFloat16},
                    Case{at::kHalf, GradientType::kFloat16}));

// More pieces than a launch takes, of awkward lengths, with gaps between.
TEST_P(GatherCastTest, EqualsAtens) {
  constexpr int kPieces = kMostGatherPieces + 3;
  constexpr int kGap = 16;
  const auto options = at::TensorOptions(GetParam().dtype).device(at::kCUDA);
  std::vector<at::Tensor> grads;
  std::vector<GatherPiece> pieces;
  int64_t place = kGap;
  for (int i = 0; i < kPieces; ++i) {
    grads.push_back(at::randn({i * 131}, options));
    pieces.push_back({grads[i].data_ptr(), place, grads[i].numel()});
    place += grads[i].numel() + kGap;
  }
  const at::Tensor bucket = at::full({place}, 7, options.dtype(at::kFloat));
  const at::Tensor expected = bucket.clone();
  ASSERT_EQ(GatherCast(pieces.data(), kPieces, GetParam().type, 0.25f,
                       bucket.data_ptr<float>(), /*stream=*/nullptr),
            cudaSuccess);
  for (int i = 0; i < kPieces; ++i) {
    expected.narrow(0, pieces[i].to, pieces[i].length)
        .copy_(grads[i].to(at::kFloat) * 0.25);
  }
  EXPECT_TRUE(at::equal(bucket, expected));
}

}  // namespace
}  // namespace tandem
