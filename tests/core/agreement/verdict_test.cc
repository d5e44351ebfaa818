#include "core/agreement/agreement.h"
#include "gtest/gtest.h"

namespace tandem::verdict_test {
namespace {

TEST(VerdictTest, IsTheFirstFailuresOrNone) {
  const std::string ok = EncodeStatus(absl::OkStatus());
  const std::string full =
      EncodeStatus(absl::ResourceExhaustedError("disk:\n7:full"));
  const std::string lost = EncodeStatus(absl::DataLossError("x"));
  EXPECT_EQ(Verdict({}), absl::OkStatus());
  EXPECT_EQ(Verdict({ok, ok, ok}), absl::OkStatus());
  EXPECT_EQ(Verdict({ok, full, lost}),
            absl::ResourceExhaustedError("rank 1: disk:\n7:full"));
  EXPECT_EQ(Verdict({lost}), absl::DataLossError("x"));
  EXPECT_EQ(Verdict({ok, "?"}).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tandem::verdict_test
