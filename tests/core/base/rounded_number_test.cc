#include "core/base/rounded_number.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::rounded_number_test {
namespace {

using c10::ScalarType;

TEST(RoundedTo, IsWhatTheDtypeHolds) {
  const double third = 1.0 / 3;
  EXPECT_EQ(RoundedTo(ScalarType::BFloat16, third), 0.333984375);
  EXPECT_EQ(RoundedTo(ScalarType::Half, third), 0.333251953125);
  EXPECT_EQ(RoundedTo(ScalarType::Float, third), third + third / (1 << 25));
  EXPECT_EQ(RoundedTo(ScalarType::Double, third), third);
  for (const ScalarType dtype :
       {ScalarType::BFloat16, ScalarType::Half, ScalarType::Float}) {
    EXPECT_EQ(RoundedTo(dtype, 0.25), 0.25) << dtype;
  }
  EXPECT_EQ(RoundedTo(ScalarType::Half, 65536),
            std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace tandem::rounded_number_test
