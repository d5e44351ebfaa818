#include "core/base/dtype_names.h"

#include <gtest/gtest.h>

namespace tandem::dtype_names_test {
namespace {

TEST(DtypeNamesTest, GoToAndFro) {
  EXPECT_EQ(DtypeName(c10::ScalarType::BFloat16), "BF16");
  EXPECT_EQ(DtypeOfName("F32"), c10::ScalarType::Float);
  EXPECT_FALSE(DtypeOfName("F33").has_value());
}

TEST(DtypeNamesTest, FlagsMayHavePyTorchsNames) {
  EXPECT_EQ(ShortDtypeName("bfloat16"), "bf16");
  EXPECT_EQ(ShortDtypeName("float64"), "fp64");
  EXPECT_EQ(LongDtypeName("fp16"), "float16");
  for (const char* other : {"", "fp32", "int8"}) {
    EXPECT_EQ(ShortDtypeName(other), other);
  }
  EXPECT_EQ(LongDtypeName("float32"), "float32");
}

}  // namespace
}  // namespace tandem::dtype_names_test
