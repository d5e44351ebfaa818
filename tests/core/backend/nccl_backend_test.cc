// What can be said of NCCL without a GPU. Under --config=cuda it is linked,
// else it is refused.

#include "core/backend/nccl_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace tandem::nccl_backend_test {
namespace {

using ::testing::HasSubstr;

absl::Status Make(c10::Device device) {
  return MakeNcclBackend(c10::make_intrusive<c10d::HashStore>(), 0, 1, device,
                         NcclOptions())
      .status();
}

TEST(NcclBackendTest, ABuildWithoutItSaysHowToGetIt) {
  if (NcclIsBuilt()) {
    EXPECT_TRUE(CheckNcclIsBuilt().ok());
    return;
  }
  for (const absl::Status& status :
       {CheckNcclIsBuilt(), Make(c10::Device(c10::kCUDA, 0)),
        TakePartInNcclSplit(nullptr, c10::Device(c10::kCUDA, 0))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("build it with --config=cuda"));
  }
}

TEST(NcclBackendTest, RefusesWhatIsNoGpu) {
  if (!NcclIsBuilt()) return;
  for (const c10::Device device :
       {c10::Device(c10::kCPU), c10::Device(c10::kCUDA),
        c10::Device(c10::kCUDA, 99)}) {
    const absl::Status status = Make(device);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("NCCL needs a GPU, such as cuda:0, and is given " +
                          device.str()));
    EXPECT_THAT(status.message(), HasSubstr("GPUs were found"));
  }
}

TEST(NcclBackendTest, RefusesToSplitWhatIsNotNccls) {
  if (!NcclIsBuilt()) return;
  EXPECT_THAT(
      TakePartInNcclSplit(nullptr, c10::Device(c10::kCUDA, 0)).message(),
      HasSubstr("split from one of another backend"));
}

}  // namespace
}  // namespace tandem::nccl_backend_test
