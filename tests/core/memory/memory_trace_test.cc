#include "core/memory/memory_trace.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/device/memory_category.h"
#include "core/instrument/trace.h"
#include "core/sim/testing.h"

namespace tandem::memory_trace_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::map<std::string, double> ValuesOf(const TraceEvent& event) {
  return {event.values.begin(), event.values.end()};
}

TEST(MemoryTraceTest, OfTheCpuItIsTheProcesssAlone) {
  TraceMemory(c10::kCPU);  // off
  Trace::OfProcess().Start();
  TraceMemory(c10::kCPU);
  const std::vector<TraceEvent> events = Trace::OfProcess().Stop();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].name, "resident memory");
  EXPECT_GT(ValuesOf(events[0])["bytes"], 1 << 20);
}

TEST(MemoryTraceTest, OfADeviceItIsByCategory) {
  const c10::Device device = SimDevices(1)[0];
  Trace::OfProcess().Start();
  TraceMemory(device);
  at::Tensor held;
  {
    const MemoryCategoryScope category(MemoryCategory::kParameters);
    held = at::empty({1000}, at::TensorOptions().device(device));
  }
  TraceMemory(device);
  held = at::Tensor();
  TraceMemory(device);
  std::vector<double> parameters;
  for (const TraceEvent& each : Trace::OfProcess().Stop()) {
    if (each.name == "resident memory") continue;
    EXPECT_EQ(each.name, "memory of " + device.str());
    EXPECT_THAT(each.values, SizeIs(kMemoryCategories));
    parameters.push_back(ValuesOf(each)["parameters"]);
  }
  EXPECT_THAT(parameters, ElementsAre(0, 4000, 0));
  TraceMemory(device);
  EXPECT_THAT(Trace::OfProcess().Stop(), IsEmpty());
}

}  // namespace
}  // namespace tandem::memory_trace_test
