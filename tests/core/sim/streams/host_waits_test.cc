#include "core/sim/streams/host_waits.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/core/sim/asynchronous.h"

namespace tandem::host_waits_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class HostWaitsTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
  void TearDown() override { sim::SynchroniseAll(); }

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
}  // namespace tandem::host_waits_test
