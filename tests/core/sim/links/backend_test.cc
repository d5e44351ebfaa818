#include "core/sim/links/backend.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/sim/imagined/meters.h"
#include "core/sim/sim.h"

namespace tandem {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int kDevice = 1;

class LinksBackendTest : public testing::TestWithParam<int> {
 protected:
  LinksBackendTest() : backend_(/*rank=*/0, GetParam()) {
    SimOptions options;
    options.imagined = true;
    EXPECT_TRUE(EnableSim(options).ok());
    sim::SetLinkSpeed({0, 1});
    sim::ResetTraffic(kDevice);
  }

  // Elements of 4 bytes each.
  static at::Tensor Floats(int64_t count) {
    return at::empty({count}, at::TensorOptions().device(SimDevice(kDevice)));
  }
  static sim::CountedTraffic Collectives() {
    return sim::ReadTraffic(kDevice).collectives;
  }
  double n() const { return GetParam(); }

  sim::LinksBackend backend_;
};

TEST_P(LinksBackendTest, AnAllReduceGoesAroundTwice) {
  Tensors tensors = {Floats(5)};
  const auto work = backend_.allreduce(tensors);
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(work->isSuccess());
  EXPECT_DOUBLE_EQ(Collectives().bytes, 2 * (n() - 1) / n() * 20);
  // Its time is waited for when it is.
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(kDevice).waited, 0);
  work->wait();
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(kDevice).waited, Collectives().seconds);
}

TEST_P(LinksBackendTest, GathersAndScattersGoAroundOnce) {
  at::Tensor whole = Floats(7 * GetParam());
  at::Tensor part = Floats(7);
  backend_.all_gather_single(whole, part);
  EXPECT_DOUBLE_EQ(Collectives().bytes, (n() - 1) * 28);
  backend_.reduce_scatter_single(part, whole);
  EXPECT_DOUBLE_EQ(Collectives().bytes, 2 * (n() - 1) * 28);
  std::vector<Tensors> outputs(1);
  for (int i = 0; i < GetParam(); ++i) outputs[0].push_back(Floats(7));
  Tensors inputs = {part};
  backend_.allgather(outputs, inputs);
  EXPECT_DOUBLE_EQ(Collectives().bytes, 3 * (n() - 1) * 28);
  EXPECT_EQ(Collectives().calls, 3);
}

TEST_P(LinksBackendTest, AnAllToAllSendsWhatIsForOthers) {
  at::Tensor sent = Floats(7 * GetParam());
  at::Tensor received = Floats(7 * GetParam());
  std::vector<int64_t> equal;
  backend_.all_to_all_single(received, sent, equal, equal);
  EXPECT_DOUBLE_EQ(Collectives().bytes, (n() - 1) * 28);
  // This rank, the first one, keeps five of its rows, and gives away the rest.
  std::vector<int64_t> splits(GetParam(), 0);
  splits.front() = 5;
  splits.back() = 7 * GetParam() - 5;
  backend_.all_to_all_single(received, sent, splits, splits);
  EXPECT_DOUBLE_EQ(Collectives().bytes, (n() - 1) * 28 + 4 * (7 * n() - 5));
  std::vector<int64_t> none(GetParam(), 0);
  at::Tensor nothing = Floats(0);
  backend_.all_to_all_single(nothing, nothing, none, none);
  EXPECT_EQ(Collectives().calls, 3);
}

TEST_P(LinksBackendTest, WhatHasARootGoesAroundWhole) {
  Tensors tensors = {Floats(3)};
  backend_.broadcast(tensors);
  backend_.reduce(tensors);
  EXPECT_DOUBLE_EQ(Collectives().bytes, 24);
}

TEST_P(LinksBackendTest, WhoReceivesAMessageCountsIt) {
  Tensors tensors = {Floats(3)};
  backend_.startCoalescing();
  backend_.send(tensors, 1, 0);
  backend_.recv(tensors, 1, 0);
  const auto work = backend_.endCoalescing();
  EXPECT_TRUE(work->isCompleted());
  work->wait();
  const sim::DeviceTraffic traffic = sim::ReadTraffic(kDevice);
  EXPECT_DOUBLE_EQ(traffic.messages.bytes, 12);
  EXPECT_EQ(traffic.messages.calls, 1);
  EXPECT_EQ(traffic.collectives.calls, 0);
  EXPECT_DOUBLE_EQ(traffic.waited, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinksBackendTest, testing::Values(2, 3, 7));

TEST(CheckImaginedTest, DevicesThatComputeAreRefused) {
  // In a process of its own: devices stay as they were made.
  EXPECT_EXIT(
      {
        const bool before = sim::CheckImagined().ok();
        const bool made = EnableSim().ok();
        std::exit(!before && made && !sim::CheckImagined().ok() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tandem
