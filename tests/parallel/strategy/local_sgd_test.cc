// Replicas that train apart between two averagings of their parameters.

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gtest/gtest.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/example_job.h"

namespace tandem::local_sgd_test {
namespace {

constexpr int kRanks = 2;

// Parameters are averaged after steps 0, 3, 6.
ReplicatedOptions EveryThirdStep() {
  ReplicatedOptions options;
  options.averaging = ParameterAveragingOptions{3, 0};
  return options;
}

Batch BatchOf(int step, const Communicator& world) {
  return Share(GlobalBatch(step, 4 * kRanks), world);
}

class LocalSgdTest : public DeviceTypeTest {};

// Rank 1 begins its steps 1 and 2 when rank 0 has ended its own: anything that
// either sent would wait for the other. Gradients are accumulated and buffers
// broadcast as well.
TEST_P(LocalSgdTest, RanksDoNotWaitForEachOtherBetweenTwoAveragings) {
  absl::Notification rank0_is_ahead;
  CommunicatorOptions communication;
  communication.timeout = std::chrono::seconds(10);
  const auto body = [&](Communicator& world) -> absl::Status {
    ReplicatedOptions options = EveryThirdStep();
    options.accumulation_steps = 2;
    options.clip_norm = 1;
    LayerList layers = PlainModel(3);
    layers.insert(layers.begin() + 1, BatchNormLayer("bn", kHidden));
    TANDEM_ASSIGN_OR_RETURN(auto strategy,
                            NewReplicated(std::move(layers), options, world));
    for (int step = 0; step < 5; ++step) {
      if (step == 1 && world.rank() == 1 &&
          !rank0_is_ahead.WaitForNotificationWithTimeout(absl::Seconds(20))) {
        return absl::DeadlineExceededError("rank 0 does not get through");
      }
      TANDEM_RETURN_IF_ERROR(
          strategy->TrainStep(BatchOf(step, world), 0.1).status());
      if (step == 2 && world.rank() == 0) rank0_is_ahead.Notify();
    }
    return absl::OkStatus();
  };
  ExpectOk(RunThreadRanks(kRanks, body, communication));
}

TEST_P(LocalSgdTest, TheScoreIsThatOfAllRanksWhereParametersAreAveraged) {
  ExpectOk(RunDeviceRanks(kRanks, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        auto strategy, NewReplicated(PlainModel(3), EveryThirdStep(), world));
    for (int step = 0; step < 5; ++step) {
      TANDEM_ASSIGN_OR_RETURN(const Score score,
                              strategy->TrainStep(BatchOf(step, world), 0.1));
      EXPECT_EQ(score.count, step % 3 == 0 ? 4 * kRanks : 4);
    }
    return absl::OkStatus();
  }));
}

TANDEM_ON_DEVICE_TYPES(LocalSgdTest);

}  // namespace
}  // namespace tandem::local_sgd_test
