#include "core/memory/state_bytes.h"

#include <gtest/gtest.h>

namespace tandem::state_bytes_test {
namespace {

TEST(StateBytesTest, OfATrainedParameter) {
  StatePerParameter adam_of_four;
  adam_of_four.optimizer_states = 2;
  adam_of_four.optimizer_shares = 4;
  adam_of_four.further = 1;
  const StateBytes state =
      StateBytesOf(400, 200, /*is_trained=*/true, adam_of_four);
  EXPECT_EQ(state.parameters, 600);
  EXPECT_EQ(state.gradients, 400);
  EXPECT_EQ(state.optimizer, 2 * 400 / 4 + 400);
  EXPECT_EQ(state.total(), 600 + 400 + 600);
}

TEST(StateBytesTest, OfAFrozenOneAreItsValues) {
  EXPECT_EQ(StateBytesOf(400, 0, /*is_trained=*/false, {}).total(), 400);
}

}  // namespace
}  // namespace tandem::state_bytes_test
