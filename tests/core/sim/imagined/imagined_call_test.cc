#include "core/sim/imagined/imagined_call.h"

#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/device/memory_category.h"
#include "core/sim/calls/operator_traits.h"
#include "core/sim/imagined/call_outcome.h"
#include "core/sim/imagined/meters.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"

namespace tandem {
namespace {

class ImaginedCallTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    SimOptions options;
    options.imagined = true;
    ASSERT_TRUE(EnableSim(options).ok());
  }

  static at::Tensor Empty(at::IntArrayRef sizes, int device = 0) {
    return at::empty(sizes, at::TensorOptions().device(SimDevice(device)));
  }
  static int64_t Held(int device = 0) {
    return sim::DeviceMemoryStatistics(device).now.total;
  }
};

TEST_F(ImaginedCallTest, ResultsHaveShapesAndAreBooked) {
  const int64_t before = Held();
  const at::Tensor sum = Empty({3, 1}).add(Empty({1, 5}));
  EXPECT_EQ(sum.sizes(), at::IntArrayRef({3, 5}));
  EXPECT_EQ(sum.device(), SimDevice(0));
  EXPECT_EQ(Held(), before + 60);
  const auto [values, indices] = sum.max(1);
  EXPECT_EQ(values.sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(indices.scalar_type(), at::kLong);
  EXPECT_EQ(sum.chunk(2, 1)[1].sizes(), at::IntArrayRef({3, 2}));
  EXPECT_EQ(Held(), before + 60 + 12 + 24);
}

TEST_F(ImaginedCallTest, AViewLiesInItsBase) {
  const at::Tensor base = Empty({4, 6});
  const int64_t before = Held();
  const at::Tensor part = base.narrow(1, 2, 3).t();
  EXPECT_EQ(part.sizes(), at::IntArrayRef({3, 4}));
  EXPECT_TRUE(part.is_alias_of(base));
  EXPECT_EQ(Held(), before);
}

TEST_F(ImaginedCallTest, TheHostIsGivenZeros) {
  EXPECT_EQ(Empty({2}).sum().item<float>(), 0);
  EXPECT_TRUE(at::equal(Empty({3}).cpu(), at::zeros({3})));
}

TEST_F(ImaginedCallTest, NoElementsTakeNoMemory) {
  const int64_t before = Held();
  const at::Tensor none = Empty({0, 7}).relu();
  EXPECT_EQ(none.sizes(), at::IntArrayRef({0, 7}));
  EXPECT_EQ(Held(), before);
}

TEST_F(ImaginedCallTest, AnArgumentThatGrowsIsBookedAgain) {
  const int64_t before = Held();
  at::Tensor out = Empty({0});
  at::mm_out(out, Empty({3, 2}), Empty({2, 5}));
  EXPECT_EQ(out.sizes(), at::IntArrayRef({3, 5}));
  EXPECT_EQ(Held(), before + 60);
}

// By the meta device's kernel, and where there is none: the same shapes.
TEST_F(ImaginedCallTest, LargeCallsAreNotRun) {
  const int64_t before = Held();
  const at::Tensor a = Empty({1 << 20, 1 << 18});
  const at::Tensor product = a.mm(Empty({1 << 18, 64}));
  EXPECT_EQ(product.sizes(), at::IntArrayRef({1 << 20, 64}));
  at::Tensor filled = a.uniform_(0, 1).mul_(2);
  EXPECT_TRUE(filled.is_same(a));
  EXPECT_EQ(Held(), before + 4 * (a.numel() + product.numel()));
}

TEST_F(ImaginedCallTest, MistakesAreThoseOfDevicesThatCompute) {
  EXPECT_THROW(Empty({2, 3}).mm(Empty({4, 5})), c10::Error);
  EXPECT_THROW(Empty({2}).add(Empty({2}, 1)), c10::Error);
  EXPECT_THROW(Empty({2}).add(at::ones({2})), c10::Error);
  EXPECT_THROW(Empty({2}).copy_(Empty({3})), c10::Error);
}

TEST_F(ImaginedCallTest, MemoryThatDoesNotSufficeIsTold) {
  sim::SetCap(3, 100);
  const at::Tensor fits = Empty({20}, 3);
  try {
    fits.add(fits);
    ADD_FAILURE() << "80 bytes more than the cap's 100 were given";
  } catch (const c10::Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("sim:3 is out of memory"), std::string::npos) << text;
  }
  sim::SetCap(3, 0);
  EXPECT_EQ(Held(3), 80);
}

// A text that grows makes a new signature in each step, without end. The first
// outcome has gone, and with it all that were known, when 65,536 others have
// come.
TEST_F(ImaginedCallTest, OutcomesAreForgottenBeforeTheyAreTooMany) {
  const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::roll", "");
  const sim::OperatorTraits traits(op);
  const at::Tensor rolled = Empty({2});
  const auto outcome_of = [&](int64_t shift) {
    return sim::ImaginedOutcome(
        op, traits,
        {rolled, c10::List<int64_t>{shift}, c10::List<int64_t>{int64_t{0}}});
  };
  const std::weak_ptr<const sim::CallOutcome> first = outcome_of(0);
  EXPECT_EQ(outcome_of(0), first.lock());
  for (int64_t shift = 1; shift <= 1 << 16; ++shift) outcome_of(shift);
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(outcome_of(0)->results.size(), 1);
}

TEST_F(ImaginedCallTest, AsynchronousOnesAreRefused) {
  SimOptions options;
  options.imagined = true;
  options.async = true;
  EXPECT_EQ(EnableSim(options).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SecondsOfTest, TheSlowerOfComputingAndMovingBytesTells) {
  EXPECT_DOUBLE_EQ(sim::RooflineSeconds({600, 100}, {100, 50}), 6);
  EXPECT_DOUBLE_EQ(sim::RooflineSeconds({100, 600}, {100, 50}), 12);
  EXPECT_DOUBLE_EQ(sim::RooflineSeconds({100, 600}, {100, 0}), 1);
  EXPECT_DOUBLE_EQ(sim::RooflineSeconds({100, 600}, {0, 0}), 0);
}

// [m, k] x [k, n] by hand: forward 2 m k n, backward twice that.
TEST(WorkMeterTest, AProductTakesWhatTheFormulaSays) {
  SimOptions options;
  options.imagined = true;
  ASSERT_TRUE(EnableSim(options).ok());
  const double m = 70;
  const double k = 110;
  const double n = 130;
  const sim::DeviceSpeed speed = {1e12, 0};
  sim::SetDeviceSpeed(speed);
  const auto on_device = at::TensorOptions().device(SimDevice(2));
  const at::Tensor a = at::empty({70, 110}, on_device).set_requires_grad(true);
  const at::Tensor b = at::empty({110, 130}, on_device).set_requires_grad(true);
  at::Tensor c;
  {
    const MemoryCategoryScope scope(MemoryCategory::kActivations);
    c = a.mm(b);
  }
  c.backward(at::ones_like(c));
  const sim::DeviceWork work = sim::TotalWork(2);
  EXPECT_EQ(work.forward.calls, 1);
  EXPECT_DOUBLE_EQ(work.forward.flops, 2 * m * k * n);
  EXPECT_DOUBLE_EQ(work.forward.bytes, 4 * (m * k + k * n + m * n));
  EXPECT_DOUBLE_EQ(work.forward.seconds, 2 * m * k * n / 1e12);
  EXPECT_DOUBLE_EQ(work.backward.flops, 4 * m * k * n);
  EXPECT_NEAR(work.backward.seconds, 4 * m * k * n / 1e12, 1e-18);
  EXPECT_EQ(a.grad().sizes(), a.sizes());
  sim::ResetWork(2);
  EXPECT_EQ(sim::TotalWork(2).forward.calls, 0);
}

// A device of 1 byte a second, and links of 10 and 5.
class LinkMeterTest : public testing::Test {
 protected:
  LinkMeterTest() {
    sim::SetDeviceSpeed({0, 1});
    sim::SetLinkSpeed({10, 5});
    for (const int device : {0, 3}) {
      sim::ResetWork(device);
      sim::ResetTraffic(device);
    }
  }
  ~LinkMeterTest() override {
    sim::SetDeviceSpeed({});
    sim::SetLinkSpeed({});
  }

  static void Work(double seconds) { sim::CountWork(3, {0, seconds}); }
};

TEST_F(LinkMeterTest, WhatComesTakesItsLinksTime) {
  sim::CountCopy(3, 20);
  sim::CountCopy(3, 0);
  sim::CountMessage(3, 20);
  const sim::DeviceTraffic traffic = sim::ReadTraffic(3);
  EXPECT_DOUBLE_EQ(traffic.copies.bytes, 20);
  EXPECT_DOUBLE_EQ(traffic.copies.seconds, 2);
  EXPECT_EQ(traffic.copies.calls, 2);
  EXPECT_DOUBLE_EQ(traffic.messages.bytes, 20);
  EXPECT_DOUBLE_EQ(traffic.messages.seconds, 4);
  EXPECT_EQ(traffic.messages.calls, 1);
  EXPECT_EQ(sim::ReadTraffic(0).copies.calls, 0);
}

TEST_F(LinkMeterTest, ACollectiveIsHiddenBehindWork) {
  Work(1);
  const double end = sim::StartCollective(3, 50);  // 10 seconds
  EXPECT_DOUBLE_EQ(end, 11);
  Work(10);
  sim::AwaitCollective(3, end);
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(3).waited, 0);
}

TEST_F(LinkMeterTest, WhatIsNotHiddenIsWaitedFor) {
  Work(1);
  const double end = sim::StartCollective(3, 50);
  Work(3);
  sim::AwaitCollective(3, end);
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(3).waited, 7);
  // The clock has waited: nothing is left to wait for.
  sim::AwaitCollective(3, end);
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(3).waited, 7);
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(3).collectives.seconds, 10);
}

TEST_F(LinkMeterTest, CollectivesRunOneBehindTheOther) {
  const double first = sim::StartCollective(3, 50);
  Work(4);
  const double second = sim::StartCollective(3, 25);
  EXPECT_DOUBLE_EQ(first, 10);
  EXPECT_DOUBLE_EQ(second, 15);
  sim::AwaitCollective(3, second);
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(3).waited, 11);
  // The link has been free since then.
  Work(2);
  EXPECT_DOUBLE_EQ(sim::StartCollective(3, 5), 18);
}

TEST_F(LinkMeterTest, ALinkWithoutEndTakesNoTime) {
  sim::SetLinkSpeed({});
  Work(2);
  const double end = sim::StartCollective(3, 1e12);
  EXPECT_DOUBLE_EQ(end, 2);
  sim::AwaitCollective(3, end);
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(3).waited, 0);
  EXPECT_DOUBLE_EQ(sim::ReadTraffic(3).collectives.bytes, 1e12);
}

}  // namespace
}  // namespace tandem
