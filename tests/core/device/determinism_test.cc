#include "core/device/determinism.h"

#include <ATen/Context.h>

#include <cstdlib>
#include <string>

#include "core/base/torch_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr char kWorkspace[] = "CUBLAS_WORKSPACE_CONFIG";

class DeterminismTest : public testing::Test {
 protected:
  ~DeterminismTest() override {
    unsetenv(kWorkspace);
    EXPECT_TRUE(SetGpuNumerics(GpuNumerics()).ok());
  }
};

void ExpectContext(bool deterministic, bool benchmark, bool tf32) {
  const at::Context& context = at::globalContext();
  EXPECT_EQ(context.deterministicAlgorithms(), deterministic);
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
  EXPECT_EQ(context.deterministicFillUninitializedMemory(), deterministic);
  EXPECT_EQ(context.deterministicCuDNN(), deterministic);
  EXPECT_EQ(context.benchmarkCuDNN(), benchmark);
  EXPECT_EQ(context.allowTF32CuDNN(), tf32);
  EXPECT_EQ(context.allowTF32CuBLAS(), tf32);
}

TEST_F(DeterminismTest, NothingAskedForIsFullPrecision) {
  ASSERT_TRUE(SetGpuNumerics(GpuNumerics()).ok());
  ExpectContext(false, false, false);
  EXPECT_EQ(std::getenv(kWorkspace), nullptr);
}

TEST_F(DeterminismTest, SpeedIsWhatIsAskedFor) {
  GpuNumerics fast;
  fast.cudnn_benchmark = true;
  ASSERT_TRUE(SetGpuNumerics(fast).ok());
  ExpectContext(false, true, false);
  fast.allow_tf32 = true;
  ASSERT_TRUE(SetGpuNumerics(fast).ok());
  ExpectContext(false, true, true);
}

TEST_F(DeterminismTest, DeterminismSetsEverythingAndTheWorkspace) {
  GpuNumerics same;
  same.deterministic = true;
  setenv(kWorkspace, "", 1);  // counts as not set
  ASSERT_TRUE(SetGpuNumerics(same).ok());
  ExpectContext(true, false, false);
  EXPECT_STREQ(std::getenv(kWorkspace), ":4096:8");
}

TEST_F(DeterminismTest, TheUsersWorkspaceStaysOrIsRefused) {
  GpuNumerics same;
  same.deterministic = true;
  setenv(kWorkspace, ":16:8", 1);
  ASSERT_TRUE(SetGpuNumerics(same).ok());
  EXPECT_STREQ(std::getenv(kWorkspace), ":16:8");
  ASSERT_TRUE(SetGpuNumerics(GpuNumerics()).ok());
  setenv(kWorkspace, ":0:0", 1);
  const absl::Status status = SetGpuNumerics(same);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("CUBLAS_WORKSPACE_CONFIG=:0:0"));
  ExpectContext(false, false, false);
  EXPECT_TRUE(SetGpuNumerics(GpuNumerics()).ok()) << "whatever it is";
}

TEST_F(DeterminismTest, SpeedAndDeterminismExcludeEachOther) {
  GpuNumerics both;
  both.deterministic = both.allow_tf32 = true;
  EXPECT_THAT(SetGpuNumerics(both).message(), HasSubstr("TF32"));
  both.cudnn_benchmark = true;
  EXPECT_THAT(SetGpuNumerics(both).message(), HasSubstr("cuDNN's benchmark"));
  ExpectContext(false, false, false);
}

TEST_F(DeterminismTest, AnOperatorWithoutADeterministicAlgorithmIsNamed) {
  GpuNumerics same;
  same.deterministic = true;
  ASSERT_TRUE(SetGpuNumerics(same).ok());
  const absl::Status thrown = CatchTorch(
      [] { at::globalContext().alertNotDeterministic("put_"); }, "layer fc");
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(NondeterministicOperator(thrown.message()), "put_");
  const absl::Status explained = ExplainNondeterminism(thrown);
  EXPECT_EQ(explained.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(explained.message(), HasSubstr("the operator put_ gives other"));
  EXPECT_THAT(explained.message(), HasSubstr("--reproducible"));
}

TEST_F(DeterminismTest, OtherErrorsStayAsTheyAre) {
  EXPECT_EQ(ExplainNondeterminism(absl::OkStatus()), absl::OkStatus());
  const absl::Status other = absl::NotFoundError("no deterministic file");
  EXPECT_EQ(ExplainNondeterminism(other), other);
  EXPECT_EQ(NondeterministicOperator(""), "");
}

}  // namespace
}  // namespace tandem
