#include "core/sim/imagined/imagined_call.h"

#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/sim/calls/operator_traits.h"
#include "core/sim/imagined/call_outcome.h"
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
  static int64_t Held(int device = 0) { return sim::BooksOf(device).now.total; }
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
    return sim::OutcomeOf(
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

}  // namespace
}  // namespace tandem
