// On a GPU the host waits for nothing within a training step: LibTorch, which
// knows of every wait of its own, is asked to refuse them
// (torch.cuda.set_sync_debug_mode). Needs a GPU: without one it says so.

#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "parallel/step/step_score.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

constexpr int kWarmUp = 3;
constexpr int kSteps = 4;

// While it lives.
class NoWaits {
 public:
  NoWaits() { Set(c10::cuda::SyncDebugMode::L_ERROR); }
  ~NoWaits() { Set(c10::cuda::SyncDebugMode::L_DISABLED); }
  NoWaits(const NoWaits&) = delete;
  NoWaits& operator=(const NoWaits&) = delete;

 private:
  static void Set(c10::cuda::SyncDebugMode mode) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
};

class CudaHostWaitsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "there is no GPU";
  }
};

INSTANTIATE_TEST_SUITE_P(Models, CudaHostWaitsTest,
                         testing::Values("mlp_dropout", "gpt_tiny"));

TEST_P(CudaHostWaitsTest, NoneWithinAStep) {
  LabLayout layout = {"one device", "sequential", 1, 1, 1};
  layout.microbatches = 2;
  layout.device_pool = {c10::Device(c10::kCUDA, 0)};
  const LabJob job = ModelJob(
      GetParam(), 0, 0,
      [](MeshStrategyOptions& options) { options.optimizer = AdamOptions(); });
  ExpectOk(OnLabRanks(layout, job, [&](const LabRank& rank) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(
        SubmitLabSteps(*rank.strategy, GetParam(), 0, kWarmUp));
    TANDEM_RETURN_IF_ERROR(rank.strategy->TakeScores().status());
    {
      const NoWaits no_waits;
      TANDEM_RETURN_IF_ERROR(
          SubmitLabSteps(*rank.strategy, GetParam(), kWarmUp, kSteps));
    }
    TANDEM_ASSIGN_OR_RETURN(const auto scores, rank.strategy->TakeScores());
    EXPECT_EQ(scores.size(), static_cast<size_t>(kSteps));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem
