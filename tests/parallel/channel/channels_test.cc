// Channels between threads of a process, and copies between devices.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/channel/copy_channel.h"

namespace tandem::channels_test {
namespace {

class CopyChannelTest : public DeviceTypeTest {
 protected:
  CopyChannelTest()
      : devices_(Devices(2)), channel_(devices_[0], devices_[1]) {}

  // Whether there are two devices: else nothing is copied.
  bool two() const { return devices_[0] != devices_[1]; }

  std::vector<c10::Device> devices_;
  CopyChannel channel_;
};

at::Tensor Example(c10::Device device, std::vector<int64_t> shape) {
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  return at::arange(numel, at::kFloat).reshape(shape).to(device).clone();
}

TEST_P(CopyChannelTest, KeepsValuesDtypeSizesAndStrides) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                           at::kLong, at::kByte}) {
    const at::Tensor x = Example(devices_[0], {2, 3, 5, 7}).to(dtype);
    for (const at::Tensor& each :
         {x, x.contiguous(at::MemoryFormat::ChannelsLast), x.transpose(0, 3),
          x[1][2][3][4], x.narrow(1, 0, 0)}) {
      const at::Tensor y = channel_.Copy(each);
      EXPECT_TRUE(IsOn(y, devices_[1])) << y.device();
      EXPECT_EQ(y.dtype(), each.dtype());
      EXPECT_EQ(y.sizes(), each.sizes());
      EXPECT_EQ(y.strides(), each.strides());
      EXPECT_TRUE(y.cpu().equal(each.cpu())) << each.sizes();
      EXPECT_FALSE(y.requires_grad());
      EXPECT_EQ(y.is_alias_of(each), !two());
    }
  }
}

TEST_P(CopyChannelTest, BackwardTakesGradientsBack) {
  at::Tensor x = Example(devices_[0], {3, 5}).requires_grad_();
  const at::Tensor y = channel_.Copy(x.mul(2));
  ASSERT_TRUE(y.requires_grad());
  const at::Tensor weights = Example(devices_[1], {3, 5});
  y.mul(weights).sum().backward();
  EXPECT_TRUE(IsOn(x.grad(), devices_[0]));
  EXPECT_TRUE(x.grad().cpu().equal(weights.cpu().mul(2)));
}

TEST_P(CopyChannelTest, ALeafGetsItsGradientAndATensorUsedTwiceTheSum) {
  at::Tensor x = Example(devices_[0], {3}).requires_grad_();
  const at::Tensor y = channel_.Copy(x);
  y.mul(channel_.Copy(x)).sum().backward();
  EXPECT_TRUE(x.grad().cpu().equal(x.detach().cpu().mul(2)));
}

TEST_P(CopyChannelTest, CarriesSeveralTensorsAtOnce) {
  at::Tensor a = Example(devices_[0], {4}).requires_grad_();
  at::Tensor b = Example(devices_[0], {2, 2}).requires_grad_();
  const at::Tensor tokens = Example(devices_[0], {4}).to(at::kLong);
  const std::vector<at::Tensor> y =
      channel_.Copy({tokens, a, at::Tensor(), b.detach(), b});
  ASSERT_EQ(y.size(), 5u);
  EXPECT_TRUE(y[0].cpu().equal(tokens.cpu()));
  EXPECT_FALSE(y[0].requires_grad());
  EXPECT_FALSE(y[2].defined());
  EXPECT_FALSE(y[3].requires_grad());
  ASSERT_TRUE(y[1].requires_grad() && y[4].requires_grad());
  y[4].mul(3).sum().backward();  // a's copy is not used
  EXPECT_FALSE(a.grad().defined());
  EXPECT_TRUE(b.grad().cpu().equal(at::full({2, 2}, 3.0)));
}

TEST_P(CopyChannelTest, NothingIsRecordedWhenGradientsAreOff) {
  const at::Tensor x = Example(devices_[0], {3}).requires_grad_();
  const at::NoGradGuard no_grad;
  EXPECT_EQ(channel_.Copy(x).requires_grad(), !two());
}

TEST_P(CopyChannelTest, DifferentiatesTwice) {
  at::Tensor x = Example(devices_[0], {3}).requires_grad_();
  const at::Tensor y = channel_.Copy(x).pow(3).sum();
  const at::Tensor first =
      torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/std::nullopt,
                            /*create_graph=*/true)[0];
  EXPECT_TRUE(IsOn(first, devices_[0]));
  first.sum().backward();
  EXPECT_TRUE(x.grad().cpu().equal(x.detach().cpu().mul(6)));
}

TEST_P(CopyChannelTest, BackwardOutlivesTheChannel) {
  at::Tensor x = Example(devices_[0], {3}).requires_grad_();
  at::Tensor y;
  {
    const CopyChannel channel(devices_[0], devices_[1]);
    y = channel.Copy(x);
  }
  y.sum().backward();
  EXPECT_TRUE(x.grad().cpu().equal(at::ones({3})));
}

TEST_P(CopyChannelTest, ADeviceToItselfIsTheTensorItself) {
  const CopyChannel channel(devices_[0], devices_[0]);
  const at::Tensor x = Example(devices_[0], {3}).requires_grad_();
  EXPECT_TRUE(channel.Copy(x).is_same(x));
  EXPECT_TRUE(channel.Send(x).Take()[0].is_same(x));
}

TEST_P(CopyChannelTest, ATensorFromElsewhereIsAnError) {
  if (!two()) GTEST_SKIP() << "one device";
  const at::Tensor x = at::ones({3}, at::device(at::kMeta));
  try {
    channel_.Copy(x);
    FAIL() << "no error";
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("a tensor on meta was given"));
    EXPECT_THAT(e.what(), testing::HasSubstr(devices_[1].str()));
  }
}

// Like in a pipeline, one thread begins what another takes, in both directions,
// and nobody keeps what was sent.
TEST_P(CopyChannelTest, ThreadsSendBothWaysAtOnce) {
  constexpr int kRounds = 20;
  const auto send = [&](bool back, std::vector<std::promise<PendingCopy>>& to) {
    for (int i = 0; i < kRounds; ++i) {
      at::Tensor x = Example(devices_[back ? 1 : 0], {31, 17}).add(i);
      const at::Tensor y = x.mul(2);
      to[i].set_value(back ? channel_.SendBack({x, y}) : channel_.Send({x, y}));
    }
  };
  const auto take = [&](bool back,
                        std::vector<std::promise<PendingCopy>>& from) {
    for (int i = 0; i < kRounds; ++i) {
      PendingCopy pending = from[i].get_future().get();
      const std::vector<at::Tensor> copies = pending.Take();
      EXPECT_TRUE(IsOn(copies[0], devices_[back ? 0 : 1]));
      const at::Tensor x = Example(at::kCPU, {31, 17}).add(i);
      EXPECT_TRUE(copies[0].cpu().equal(x)) << i;
      EXPECT_TRUE(copies[1].sub(copies[0]).cpu().equal(x)) << i;
    }
  };
  std::vector<std::promise<PendingCopy>> there(kRounds);
  std::vector<std::promise<PendingCopy>> back(kRounds);
  auto first = std::async(std::launch::async, [&] {
    send(false, there);
    take(true, back);
  });
  send(true, back);
  take(false, there);
  first.get();
}

TANDEM_ON_DEVICE_TYPES(CopyChannelTest);

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
}  // namespace tandem::channels_test
