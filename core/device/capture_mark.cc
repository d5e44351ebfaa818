#include "core/device/capture_mark.h"

#include <atomic>
#include <mutex>
#include <set>
#include <string>

namespace tandem {
namespace {

struct Marks {
  std::mutex mutex;
  std::set<std::string> devices;
  std::atomic<size_t> count{0};  // so that nobody else locks
};

Marks& All() {
  static auto* marks = new Marks;
  return *marks;
}

}  // namespace

CaptureMark::CaptureMark(c10::Device device) : device_(device) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().devices.insert(device_.str());
  All().count = All().devices.size();
}

CaptureMark::~CaptureMark() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().devices.erase(device_.str());
  All().count = All().devices.size();
}

bool WorkIsCaptured(c10::Device device) {
  if (All().count == 0) return false;
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().devices.count(device.str()) > 0;
}

}  // namespace tandem
