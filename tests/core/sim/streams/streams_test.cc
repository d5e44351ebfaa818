// Streams of simulated devices through LibTorch's own guards: what is not
// waited for has wrong values, what is waited for never.

#include "core/sim/streams/streams.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/core/sim/asynchronous.h"
#include "tests/core/testing/thrown.h"

namespace tandem::streams_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class StreamsTest : public AsynchronousSimTest {};

c10::Event NewEvent() { return c10::Event(c10::DeviceType::PrivateUse1); }

at::Tensor Zeros(int device) {
  return at::zeros({64}, at::device(SimDevice(device)));
}

float First(const at::Tensor& tensor) { return tensor[0].item<float>(); }

// The first call of a kind for a shape waits for its stream: it comes before
// streams are held.
void WarmUp() {
  for (const int device : {0, 1}) {
    at::Tensor x = Zeros(device);
    x.fill_(5);
    x.add_(1);
    at::Tensor y = x + x;
    y.copy_(x);
  }
  sim::SynchroniseAll();
}

TEST_F(StreamsTest, EachThreadHasACurrentStream) {
  const c10::Stream initial = sim::CurrentStream(0);
  EXPECT_EQ(initial, sim::DefaultStream(0));
  const c10::Stream pooled = sim::PooledStream(0);
  EXPECT_NE(pooled, initial);
  {
    const c10::StreamGuard guard(pooled);
    EXPECT_EQ(sim::CurrentStream(0), pooled);
    EXPECT_EQ(sim::CurrentStream(1), sim::DefaultStream(1));
    std::thread([] {
      EXPECT_EQ(sim::CurrentStream(0), sim::DefaultStream(0));
    }).join();
  }
  EXPECT_EQ(sim::CurrentStream(0), initial);
  EXPECT_EQ(sim::ExchangeStream(pooled), initial);
  EXPECT_EQ(sim::ExchangeStream(initial), pooled);
}

TEST_F(StreamsTest, PooledStreamsAreGivenInTurn) {
  std::set<int64_t> ids;
  for (int i = 0; i < 7; ++i) ids.insert(sim::PooledStream(2).id());
  EXPECT_EQ(ids.size(), 7);
  EXPECT_EQ(ids.count(sim::DefaultStream(2).id()), 0);
  for (int i = 0; i < 7; ++i) ids.insert(sim::PooledStream(2).id());
  EXPECT_EQ(ids.size(), 7);
}

TEST_F(StreamsTest, StreamsOfHighPriorityAreOthers) {
  std::set<int64_t> ids = {sim::DefaultStream(2).id()};
  for (int i = 0; i < 7; ++i) ids.insert(sim::PooledStream(2).id());
  for (int i = 0; i < 4; ++i) {
    const int64_t id = sim::PooledStream(2, /*high_priority=*/true).id();
    EXPECT_TRUE(ids.insert(id).second) << id;
  }
}

TEST_F(StreamsTest, IsIdleWhenNothingIsLeft) {
  const c10::Stream stream = sim::PooledStream(0);
  EXPECT_TRUE(sim::IsIdle(stream));
  {
    const HeldStream held(stream);
    EXPECT_FALSE(sim::IsIdle(stream));
    EXPECT_FALSE(stream.query());
  }
  stream.synchronize();
  EXPECT_TRUE(stream.query());
}

TEST_F(StreamsTest, AMissingEventGivesWrongValues) {
  WarmUp();
  const c10::Stream writer = sim::PooledStream(0);
  at::Tensor x = Zeros(0);
  at::Tensor seen = Zeros(0);
  sim::SynchroniseAll();
  {
    const HeldStream held(writer);
    {
      const c10::StreamGuard guard(writer);
      x.fill_(5);
    }
    seen.copy_(x);  // on the default stream, which waits for nothing
    sim::Synchronise(sim::DefaultStream(0));
    EXPECT_EQ(First(seen), 0);
  }
  sim::SynchroniseAll();
  EXPECT_EQ(First(x), 5);
  EXPECT_EQ(First(seen), 0) << "it is too late";
}

TEST_F(StreamsTest, AnEventGivesRightValues) {
  WarmUp();
  const c10::Stream writer = sim::PooledStream(0);
  for (int i = 0; i < 200; ++i) {
    at::Tensor x = Zeros(0);
    at::Tensor seen = Zeros(0);
    c10::Event made = NewEvent();
    made.record(sim::CurrentStream(0));  // x is zeros
    made.block(writer);
    c10::Event written = NewEvent();
    {
      auto held = i % 2 == 0 ? std::make_unique<HeldStream>(writer) : nullptr;
      const c10::StreamGuard guard(writer);
      x.fill_(5);
      written.record(writer);
      EXPECT_TRUE(held == nullptr || !written.query());
    }
    written.block(sim::CurrentStream(0));
    seen.copy_(x);
    ASSERT_EQ(First(seen), 5) << i;
    EXPECT_TRUE(written.query());
  }
}

// The other way round: who writes again must wait for who reads.
TEST_F(StreamsTest, OverwritingWhatIsStillReadIsSeen) {
  WarmUp();
  const c10::Stream reader = sim::PooledStream(0);
  for (const bool waits : {false, true}) {
    at::Tensor x = Zeros(0);
    at::Tensor seen = Zeros(0);
    sim::SynchroniseAll();
    auto held = std::make_unique<HeldStream>(reader);
    c10::Event read = NewEvent();
    {
      const c10::StreamGuard guard(reader);
      seen.copy_(x);
      read.record(reader);
    }
    if (waits) read.block(sim::CurrentStream(0));
    x.fill_(5);
    if (!waits) sim::Synchronise(sim::CurrentStream(0));
    held.reset();
    sim::SynchroniseAll();
    EXPECT_EQ(First(seen), waits ? 0 : 5);
    EXPECT_EQ(First(x), 5);
  }
}

TEST_F(StreamsTest, EventsJoinDevices) {
  WarmUp();
  at::Tensor x = Zeros(0);
  at::Tensor flag = Zeros(1);
  sim::SynchroniseAll();
  c10::Event event = NewEvent();
  {
    const HeldStream held(sim::DefaultStream(0));
    x.fill_(5);
    event.record(sim::DefaultStream(0));
    event.block(sim::DefaultStream(1));
    flag.fill_(5);
    EXPECT_FALSE(sim::IsIdle(sim::DefaultStream(1)));
  }
  sim::SynchroniseDevice(1);
  EXPECT_TRUE(sim::IsIdle(sim::DefaultStream(1)));
  EXPECT_TRUE(event.query());
  EXPECT_EQ(First(x), 5);
}

TEST_F(StreamsTest, EventsThatWereNeverRecordedHoldNobody) {
  c10::Event event = NewEvent();
  event.block(sim::DefaultStream(0));
  sim::SynchroniseDevice(0);
  sim::Event other;
  sim::HoldStream(other, sim::DefaultStream(0));
  EXPECT_TRUE(sim::IsIdle(sim::DefaultStream(0)));
}

TEST_F(StreamsTest, SynchronisingThrowsWhatFailedOnce) {
  const c10::Stream stream = sim::PooledStream(3);
  sim::Push(stream, [] { throw std::runtime_error("lost"); });
  EXPECT_EQ(Thrown([&] { sim::SynchroniseDevice(3); }), "lost");
  EXPECT_EQ(Thrown([&] { sim::SynchroniseDevice(3); }), "");
  sim::Push(stream, [] { throw std::runtime_error("lost again"); });
  EXPECT_EQ(Thrown([&] { stream.synchronize(); }), "lost again");
  EXPECT_EQ(Thrown([] { sim::SynchroniseAll(); }), "");
}

TEST_F(StreamsTest, AutogradRunsABackwardOnItsForwardsStream) {
  const c10::Stream stream = sim::PooledStream(1);
  at::Tensor x = at::ones({8}, at::device(SimDevice(1)));
  sim::SynchroniseAll();
  x.requires_grad_();
  for (int i = 0; i < 20; ++i) {
    x.mutable_grad() = at::Tensor();
    int64_t backward_on = -1;
    at::Tensor y;
    {
      const c10::StreamGuard guard(stream);
      y = x * 3;
      y.register_hook([&](const at::Tensor& gradient) {
        backward_on = sim::CurrentStream(1).id();
        return gradient;
      });
      y = y.sum();
    }
    // Its caller's stream waits for it, as on CUDA.
    y.backward();
    EXPECT_EQ(backward_on, stream.id());
    ASSERT_EQ(x.grad().sum().item<float>(), 24);
  }
}

class HostWaitsTest : public AsynchronousSimTest {
 protected:
  static sim::HostWaits Of(const std::function<void()>& work) {
    const sim::HostWaits before = sim::CountedHostWaits();
    work();
    return sim::HostWaitsSince(before);
  }
  static at::Tensor OnDevice() { return at::ones({3}).to(SimDevice(0)); }
};

TEST_F(HostWaitsTest, WhatIsQueuedIsNone) {
  const at::Tensor x = OnDevice();
  const at::Tensor pinned = at::ones({3}).pin_memory();
  EXPECT_THAT(Of([&] {
                const at::Tensor y = x * 2 + x.sum();
                y.to(SimDevice(1));
                pinned.to(SimDevice(0), at::kFloat, /*non_blocking=*/true);
              }),
              IsEmpty());
}

TEST_F(HostWaitsTest, CopiesToAndFromTheHostAre) {
  const at::Tensor x = OnDevice();
  EXPECT_THAT(Of([&] { x.cpu(); }), ElementsAre(Pair("copy to the host", 1)));
  EXPECT_THAT(Of([&] {
                at::ones({3}).to(SimDevice(0));
                // Pageable memory is read before the call comes back.
                at::ones({3}).to(SimDevice(0), at::kFloat,
                                 /*non_blocking=*/true);
              }),
              ElementsAre(Pair("copy from the host", 2)));
}

TEST_F(HostWaitsTest, SoIsWhatTheHostMustKnow) {
  const at::Tensor x = OnDevice();
  EXPECT_THAT(Of([&] { x[0].item<float>(); }),
              ElementsAre(Pair("aten::_local_scalar_dense", 1)));
  EXPECT_THAT(Of([&] { x.nonzero(); }), ElementsAre(Pair("aten::nonzero", 1)));
}

TEST_F(HostWaitsTest, SoIsEveryWaitByName) {
  const c10::impl::VirtualGuardImpl devices(c10::DeviceType::PrivateUse1);
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(sim::DefaultStream(0));
  EXPECT_THAT(
      Of([&] {
        event.synchronize();
        sim::DefaultStream(0).synchronize();
        devices.synchronizeDevice(0);
      }),
      ElementsAre(Pair("device", 1), Pair("event", 1), Pair("stream", 1)));
  // Streams wait for each other without the host.
  EXPECT_THAT(Of([&] { event.block(sim::PooledStream(0)); }), IsEmpty());
}

}  // namespace
}  // namespace tandem::streams_test
