#include "core/memory/memory_trace.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/device/memory_category.h"
#include "core/instrument/trace.h"
#include "core/memory/device_memory.h"
#include "core/program/process.h"

namespace tandem {
namespace {

std::vector<std::pair<std::string, double>> Series(const DeviceMemory& memory) {
  const MemoryUse& now = memory.statistics.now;
  if (!memory.has_categories) {
    return {{"allocated", static_cast<double>(now.total)}};
  }
  std::vector<std::pair<std::string, double>> series;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    series.emplace_back(MemoryCategoryName(category),
                        static_cast<double>(now.by_category[i]));
  }
  return series;
}

}  // namespace

void TraceMemory(c10::Device device) {
  Trace& trace = Trace::OfProcess();
  if (!trace.is_on()) return;
  trace.Count("resident memory", {{"bytes", RssMib() * (1 << 20)}});
  const std::optional<DeviceMemory> memory = MemoryOf(device);
  if (!memory.has_value()) return;
  trace.Count(absl::StrCat("memory of ", device.str()), Series(*memory));
}

}  // namespace tandem
