// Streams of simulated devices' small pools: owners do not share.

#include "core/device/own_stream.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/sim/streams/streams.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::own_stream_test {
namespace {

class OwnStreamTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
};

// Whoever else takes streams of the pool meanwhile.
TEST_F(OwnStreamTest, AnotherOwnerHasAnotherOne) {
  std::vector<OwnStream> owned;
  std::set<c10::StreamId> ids;
  for (int i = 0; i < 3; ++i) {
    owned.push_back(TakeStream(SimDevice(5)));
    ids.insert(owned.back()->id());
    for (int others = 0; others <= i; ++others) sim::PooledStream(5);
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids.count(sim::DefaultStream(5).id()), 0u);
}

// One that was given back is the next owner's where all others are taken; more
// owners than streams share.
TEST_F(OwnStreamTest, IsGivenBack) {
  std::vector<OwnStream> owned;
  std::set<c10::StreamId> ids;
  for (OwnStream next = TakeStream(SimDevice(6)); ids.insert(next->id()).second;
       next = TakeStream(SimDevice(6))) {
    owned.push_back(next);
  }
  ASSERT_GT(owned.size(), 2u);
  for (OwnStream& each : owned) {
    const c10::StreamId id = each->id();
    each = nullptr;
    each = TakeStream(SimDevice(6));
    EXPECT_EQ(each->id(), id);
  }
  EXPECT_EQ(ids.count(TakeStream(SimDevice(6))->id()), 1u);
}

}  // namespace
}  // namespace tandem::own_stream_test
