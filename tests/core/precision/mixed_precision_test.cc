#include "core/precision/mixed_precision.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace tandem::mixed_precision_test {
namespace {

TEST(MixedPrecisionTest, TakesLowPrecisionsAlone) {
  MixedPrecision precision;
  EXPECT_TRUE(CheckMixedPrecision(precision).ok());
  precision.param_dtype = at::kBFloat16;
  precision.reduce_dtype = at::kHalf;
  EXPECT_TRUE(CheckMixedPrecision(precision).ok());
  precision.buffer_dtype = at::kDouble;
  const absl::Status status = CheckMixedPrecision(precision);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "mixed_precision.buffer_dtype is Double: expected BFloat16 or "
            "Half, or none for fp32");
}

TEST(MixedPrecisionTest, HasNames) {
  for (const char* name : {"fp32", "bf16", "fp16"}) {
    const auto dtype = PrecisionOfName(name);
    ASSERT_TRUE(dtype.ok()) << dtype.status();
    EXPECT_EQ(PrecisionName(*dtype), name);
  }
  EXPECT_EQ(PrecisionOfName("tf32").status().message(),
            "precision 'tf32': expected fp32, bf16 or fp16");
}

TEST(MixedPrecisionTest, DescribesItself) {
  MixedPrecision precision;
  precision.param_dtype = at::kBFloat16;
  EXPECT_EQ(Describe(precision),
            "params bf16, gradients fp32 between replicas, buffers fp32");
}

TEST(CastBuffersTest, LeavesBatchNormsStatisticsAndIntegers) {
  const NamedTensors buffers = {
      {"table", at::ones({2})},
      {"bn.running_mean", at::ones({2})},
      {"bn.running_var", at::ones({2})},
      {"bn.num_batches_tracked", at::ones({}, at::kLong)}};
  CastBuffers(buffers, at::kBFloat16);
  EXPECT_EQ(buffers[0].second.scalar_type(), at::kBFloat16);
  EXPECT_EQ(buffers[1].second.scalar_type(), at::kFloat);
  EXPECT_EQ(buffers[2].second.scalar_type(), at::kFloat);
  EXPECT_EQ(buffers[3].second.scalar_type(), at::kLong);
}

}  // namespace
}  // namespace tandem::mixed_precision_test
