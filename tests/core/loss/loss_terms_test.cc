#include "core/loss/loss_terms.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace tandem {
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
    AddLoss("b", Scalar(1));
    AddLoss("a", at::ones({1}));
    AddLoss("b", Scalar(3));
  }
  ASSERT_EQ(NamesOf(terms), "bab");
  EXPECT_EQ(terms.terms()[2].loss.item<double>(), 3);
}

TEST(LossTermsTest, NobodyCollectsOutsideOfAScope) {
  AddLoss("a", Scalar(1));
  LossTerms terms;
  {
    const LossTerms::Scope scope(&terms);
    std::thread([] { AddLoss("of another thread", Scalar(1)); }).join();
  }
  AddLoss("a", Scalar(1));
  EXPECT_EQ(NamesOf(terms), "");
}

TEST(LossTermsTest, TheInnermostScopeCollects) {
  LossTerms outer, inner;
  const LossTerms::Scope of_outer(&outer);
  AddLoss("1", Scalar(1));
  {
    const LossTerms::Scope of_inner(&inner);
    AddLoss("2", Scalar(1));
    const LossTerms::Scope nobody(nullptr);
    AddLoss("3", Scalar(1));
  }
  AddLoss("4", Scalar(1));
  EXPECT_EQ(NamesOf(outer), "14");
  EXPECT_EQ(NamesOf(inner), "2");
}

TEST(LossTermsTest, RefusesWhatIsNoScalarAndHasNoName) {
  EXPECT_ANY_THROW(AddLoss("a", at::ones({2})));
  EXPECT_ANY_THROW(AddLoss("a", at::Tensor()));
  EXPECT_ANY_THROW(AddLoss("", Scalar(1)));
}

}  // namespace
}  // namespace tandem
