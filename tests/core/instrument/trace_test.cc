#include "core/instrument/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/core/instrument/trace_events.h"
#include "tests/core/testing/on_threads.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(TraceTest, ItCollectsOnlyWhileItIsOn) {
  Trace trace;
  EXPECT_FALSE(trace.is_on());
  trace.Add(Event("compute", "before", 0, 1));
  trace.Start();
  EXPECT_TRUE(trace.is_on());
  trace.Add(Event("compute", "during", 0, 1));
  const std::vector<TraceEvent> events = trace.Stop();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].name, "during");
  trace.Add(Event("compute", "after", 0, 1));
  EXPECT_THAT(trace.Stop(), IsEmpty());
}

TEST(TraceTest, StartForgetsWhatWasCollected) {
  Trace trace;
  trace.Start();
  trace.Add(Event("compute", "old", 0, 1));
  trace.Start();
  EXPECT_THAT(trace.Stop(), IsEmpty());
}

TEST(TraceTest, AScopeIsRecordedFromItsBeginningToItsEnd) {
  { TraceScope off("compute", "off"); }
  Trace::OfProcess().Start();
  const auto before = TraceEvent::Clock::now();
  {
    TraceScope outer("compute", "outer");
    TraceScope inner("compute", "inner");
  }
  const auto after = TraceEvent::Clock::now();
  const std::vector<TraceEvent> events = Trace::OfProcess().Stop();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].name, "inner");
  EXPECT_EQ(events[1].name, "outer");
  EXPECT_LE(before, events[1].start);
  EXPECT_LE(events[1].start, events[0].start);
  EXPECT_LE(events[0].end, events[1].end);
  EXPECT_LE(events[1].end, after);
}

TEST(TraceTest, ThreadsAddAtTheSameTime) {
  Trace trace;
  trace.Start();
  OnThreads(4, [&](int) {
    for (int i = 0; i < 997; ++i) trace.Add(Event("compute", "x", i, i + 1));
  });
  EXPECT_THAT(trace.Stop(), SizeIs(4 * 997));
}

TEST(TraceTest, WhatItHasNoRoomForIsCounted) {
  Trace trace;
  trace.Start(/*most=*/3);
  for (int i = 0; i < 5; ++i) trace.Add(Event("compute", "x", i, i + 1));
  trace.AddLater([] { return Event("compute", "later", 9, 10); });
  EXPECT_EQ(trace.dropped(), 3);
  EXPECT_THAT(trace.Stop(), SizeIs(3));
  EXPECT_EQ(trace.dropped(), 3);
  trace.Start();
  EXPECT_EQ(trace.dropped(), 0);
  trace.Stop();
}

TEST(TraceTest, WhatIsKnownLaterIsAskedForAtTheEnd) {
  Trace trace;
  int asked = 0;
  const auto event = [&asked] {
    ++asked;
    return Event("device 0", "layer", 3, 5);
  };
  trace.AddLater(event);  // off: dropped
  trace.Start();
  trace.AddLater(event);
  trace.Add(Event("device 0", "forward", 1, 9));
  EXPECT_EQ(asked, 0);
  const std::vector<TraceEvent> events = trace.Stop();
  EXPECT_EQ(asked, 1);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].name, "forward");
  EXPECT_EQ(events[1].name, "layer");
  EXPECT_THAT(trace.Stop(), IsEmpty());
}

TEST(TraceTest, ACountersSampleIsOfNow) {
  Trace trace;
  trace.Count("memory", {{"bytes", 1}});
  const auto before = TraceEvent::Clock::now();
  trace.Start();
  EXPECT_GE(trace.started(), before);
  trace.Count("memory", {{"parameters", 3}, {"gradients", 0.5}});
  const std::vector<TraceEvent> events = trace.Stop();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].name, "memory");
  EXPECT_GE(events[0].start, before);
  EXPECT_LE(events[0].start, TraceEvent::Clock::now());
  EXPECT_THAT(events[0].values, ElementsAre(std::pair("parameters", 3.0),
                                            std::pair("gradients", 0.5)));
}

}  // namespace
}  // namespace tandem
