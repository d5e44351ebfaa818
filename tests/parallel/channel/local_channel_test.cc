
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "core/testing/statuses.h"
#include "parallel/channel/copy_channel.h"

namespace tandem::local_channel_test {
namespace {

using std::chrono::milliseconds;

// From the CPU to the CPU.
class LocalChannelTest : public testing::Test {
 protected:
  static LocalChannel Make(int capacity, milliseconds timeout) {
    return {CopyChannel(c10::kCPU, c10::kCPU).there(),
            capacity,
            timeout,
            {"activations", "from stage 1"}};
  }
};

TEST_F(LocalChannelTest, MessagesAreTakenInAnyOrder) {
  LocalChannel channel = Make(2, milliseconds(1));
  for (int m : {0, 1}) {
    ASSERT_TRUE(channel.Send(m, {at::full({2}, m)}).ok());
  }
  for (int m : {1, 0}) {
    const auto message = channel.Receive(m);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_TRUE(message->at(0).equal(at::full({2}, m)));
  }
}

TEST_F(LocalChannelTest, WhatTakesAGradientRequiresOne) {
  LocalChannel channel = Make(1, milliseconds(1));
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  ASSERT_TRUE(channel.Send(0, {leaf, at::ones({2}), {}}).ok());
  const auto message = channel.Receive(0);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_TRUE(message->at(0).requires_grad());
  EXPECT_FALSE(message->at(1).requires_grad());
  EXPECT_FALSE(message->at(2).defined());
}

TEST_F(LocalChannelTest, WaitsEndByTheTimeout) {
  LocalChannel channel = Make(1, milliseconds(1));
  const absl::Status nothing = channel.Receive(3).status();
  EXPECT_THAT(nothing,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "the activations of microbatch 3 from stage 1 did not "
                       "come within 1ms"));
  ASSERT_TRUE(channel.Send(0, {at::ones({2})}).ok());
  const absl::Status full = channel.Send(1, {at::ones({2})});
  EXPECT_THAT(full,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "the activations of microbatch 1 from stage 1 could not "
                       "be handed over: 1 before it were not taken"));
}

TEST_F(LocalChannelTest, CloseEndsAWaitUntilTheNextStepBegins) {
  LocalChannel channel = Make(1, std::chrono::minutes(1));
  const absl::Status reason = absl::CancelledError("a stage has failed");
  std::thread closer([&] { channel.Close(reason); });
  EXPECT_EQ(channel.Receive(0).status(), reason);
  closer.join();
  channel.Close(absl::AbortedError("the first reason counts"));
  EXPECT_EQ(channel.Send(0, {at::ones({2})}), reason);
  channel.Begin({});
  EXPECT_TRUE(channel.Send(0, {at::ones({2})}).ok());
}

}  // namespace
}  // namespace tandem::local_channel_test
