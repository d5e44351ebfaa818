#include "tools/trainer/host_wait_meter.h"

namespace tandem {
namespace {

constexpr int64_t kFirstSteps = 3;

}  // namespace

void HostWaitMeter::BeginStep() { before_ = sim::CountedHostWaits(); }

void HostWaitMeter::EndStep() {
  if (++begun_ <= kFirstSteps) return;
  ++steps_;
  for (const auto& [what, count] : sim::HostWaitsSince(before_)) {
    all_[what] += count;
  }
}

std::map<std::string, double> HostWaitMeter::waits() const {
  std::map<std::string, double> waits;
  for (const auto& [what, count] : all_) {
    waits[what] = static_cast<double>(count) / static_cast<double>(steps_);
  }
  return waits;
}

}  // namespace tandem
