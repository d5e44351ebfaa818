#include "core/sim/testing.h"

#include <glog/logging.h>

#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"

namespace tandem {
namespace {

// 0 if the variable is not set.
int64_t NumberFrom(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return 0;
  int64_t number = 0;
  CHECK(absl::SimpleAtoi(text, &number) && number >= 0)
      << variable << "=" << text << " is no number";
  return number;
}

}  // namespace

SimOptions SimOptionsForTests() {
  SimOptions options;
  options.async = std::getenv("TANDEM_SIM_ASYNC") != nullptr;
  options.most_delay_us = static_cast<int>(NumberFrom("TANDEM_SIM_ASYNC"));
  options.delay_seed = static_cast<uint64_t>(NumberFrom("TANDEM_SIM_SEED"));
  return options;
}

std::vector<c10::Device> SimDevices(int n) {
  if (!SimIsEnabled()) {
    const absl::Status enabled = EnableSim(SimOptionsForTests());
    CHECK(enabled.ok()) << enabled;
  }
  CHECK(n >= 0 && n <= 16) << n << " simulated devices: there are 16";
  std::vector<c10::Device> devices;
  for (int i = 0; i < n; ++i) devices.push_back(SimDevice(i));
  return devices;
}

SimMemoryCap::SimMemoryCap(c10::Device device, int64_t bytes)
    : device_(device) {
  sim::SetCap(device_.index(), bytes);
}

SimMemoryCap::~SimMemoryCap() { sim::SetCap(device_.index(), 0); }

}  // namespace tandem
