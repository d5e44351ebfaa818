// Products while kernels are measured.

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/autotune/choice_file.h"
#include "core/autotune/kernel_choices.h"
#include "models/functions/matrix_product.h"
#include "tests/models/functions/measured_kernels.h"

namespace tandem::product_library_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kM = 96, kK = 64, kN = 80;

class ProductLibraryTest : public MeasuredKernelsTest {
 protected:
  const at::Tensor a_ = at::randn({kM, kK});
  const at::Tensor b_ = at::randn({kK, kN});
  const at::Tensor bias_ = at::randn({kN});
};

TEST_F(ProductLibraryTest, TheFasterOneMultiplies) {
  ASSERT_GE(kM * kK * kN, kLeastMeasuredProduct);
  ASSERT_LT(kM * kK * kN, kLeastOneDnnProduct);
  Measure("mkl");
  EXPECT_TRUE(MatrixProduct(a_, b_).equal(at::mm(a_, b_)));
  EXPECT_TRUE(MatrixProduct(a_, b_, bias_).equal(at::addmm(bias_, a_, b_)));
  Measure("onednn");
  const at::Tensor product = MatrixProduct(a_, b_);
  EXPECT_TRUE(product.allclose(at::mm(a_, b_), 1e-5, 1e-4));
  const at::Tensor put = at::empty({kM, kN});
  PutMatrixProduct(put, a_, b_);
  EXPECT_TRUE(put.equal(product));
  EXPECT_TRUE(MatrixProduct(a_, b_, bias_)
                  .allclose(at::addmm(bias_, a_, b_), 1e-5, 1e-4));
}

TEST_F(ProductLibraryTest, QuestionsAreToldApartByShapeStridesAndBias) {
  Measure("onednn");
  MatrixProduct(a_, b_);
  MatrixProduct(a_, b_, bias_);
  MatrixProduct(a_, b_.t().contiguous().t());
  MatrixProduct(at::randn({kM, kK + 1}).narrow(1, 0, kK), b_);
  MatrixProduct(at::randn({kM + 1, kK}), b_);
  MatrixProduct(a_, b_);  // again
  const Choices written = Written();
  EXPECT_EQ(written.size(), 5);
  for (const std::string part :
       {"product 96 x 64 x 80 nn on", "product 96 x 64 x 80 nn with bias",
        "product 96 x 64 x 80 nt", "product 96 x 64 x 80 Nn",
        "product 97 x 64 x 80 nn"}) {
    int found = 0;
    for (const auto& [key, choice] : written) {
      found += key.find(part) != std::string::npos;
      EXPECT_EQ(choice, "onednn");
    }
    EXPECT_EQ(found, 1) << part;
  }
}

// oneDNN takes longer to be called than these take.
TEST_F(ProductLibraryTest, TheSmallestAreNotMeasured) {
  Measure("onednn");
  MatrixProduct(at::randn({8, 8}), at::randn({8, 8}));
  EXPECT_TRUE(Written().empty());
}

TEST_F(ProductLibraryTest, TheRuleHoldsWhereNothingIsMeasured) {
  EXPECT_EQ(LeastProductForOneDnn(), kLeastOneDnnProduct);
  Measure("onednn");
  EXPECT_EQ(LeastProductForOneDnn(), kLeastMeasuredProduct);
  const at::Tensor measured = MatrixProduct(a_, b_);
  KernelChoices::OfProcess().Fix();
  EXPECT_TRUE(MatrixProduct(a_, b_).equal(at::mm(a_, b_)));
  const at::Tensor large = at::randn({256, 256});
  const at::Tensor by_rule = MatrixProduct(large, large);
  Measure("onednn");
  EXPECT_TRUE(MatrixProduct(large, large).equal(by_rule));
}

}  // namespace
}  // namespace tandem::product_library_test
