#include "core/loss/loss_terms.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace tandem::loss_terms_test {
namespace {

at::Tensor Scalar(double value) { return at::full({}, value); }

std::string NamesOf(const LossTerms& terms) {
  std::string names;
  for (const auto& each : terms.terms()) names += each.name;
  return names;
}

TEST(LossTermsTest, CollectInOrder) {
  LossTerms terms;
  {
    const LossTerms::Scope scope(&terms);
    AddAuxiliaryLoss("b", Scalar(1));
    AddAuxiliaryLoss("a", at::ones({1}));
    AddAuxiliaryLoss("b", Scalar(3));
  }
  ASSERT_EQ(NamesOf(terms), "bab");
  EXPECT_EQ(terms.terms()[2].loss.item<double>(), 3);
}

TEST(LossTermsTest, SumsAreDetached) {
  LossTerms terms;
  const LossTerms::Scope scope(&terms);
  AddSum("tokens", at::ones({1}).requires_grad_());
  ASSERT_EQ(NamesOf(terms), "tokens");
  EXPECT_TRUE(terms.terms()[0].is_sum);
  EXPECT_FALSE(terms.terms()[0].loss.requires_grad());
  EXPECT_THROW(AddSum("", Scalar(1)), c10::ValueError);
  EXPECT_THROW(AddSum("pair", at::ones({2})), c10::ValueError);
}

TEST(LossTermsTest, NobodyCollectsOutsideOfAScope) {
  AddAuxiliaryLoss("a", Scalar(1));
  LossTerms terms;
  {
    const LossTerms::Scope scope(&terms);
    std::thread([] {
      AddAuxiliaryLoss("of another thread", Scalar(1));
    }).join();
  }
  AddAuxiliaryLoss("a", Scalar(1));
  EXPECT_EQ(NamesOf(terms), "");
}

TEST(LossTermsTest, TheInnermostScopeCollects) {
  LossTerms outer, inner;
  const LossTerms::Scope of_outer(&outer);
  AddAuxiliaryLoss("1", Scalar(1));
  {
    const LossTerms::Scope of_inner(&inner);
    AddAuxiliaryLoss("2", Scalar(1));
    const LossTerms::Scope nobody(nullptr);
    AddAuxiliaryLoss("3", Scalar(1));
  }
  AddAuxiliaryLoss("4", Scalar(1));
  EXPECT_EQ(NamesOf(outer), "14");
  EXPECT_EQ(NamesOf(inner), "2");
}

TEST(LossTermsTest, RefusesWhatIsNoScalarAndHasNoName) {
  EXPECT_ANY_THROW(AddAuxiliaryLoss("a", at::ones({2})));
  EXPECT_ANY_THROW(AddAuxiliaryLoss("a", at::Tensor()));
  EXPECT_ANY_THROW(AddAuxiliaryLoss("", Scalar(1)));
}

}  // namespace
}  // namespace tandem::loss_terms_test
