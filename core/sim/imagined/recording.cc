#include "core/sim/imagined/recording.h"

#include <glog/logging.h>

namespace tandem {
namespace sim {
namespace {

thread_local AllocationRecording* current = nullptr;

}  // namespace

AllocationRecording::AllocationRecording() {
  CHECK(current == nullptr) << "calls are recorded one at a time";
  current = this;
}

AllocationRecording::~AllocationRecording() { current = nullptr; }

AllocationRecording* AllocationRecording::Current() { return current; }

void AllocationRecording::NoteTaken(const void* block, size_t bytes) {
  held_[block] = blocks_;
  events_.push_back({blocks_++, /*taken=*/true, bytes});
}

void AllocationRecording::NoteGivenBack(const void* block) {
  const auto found = held_.find(block);
  if (found == held_.end()) return;
  events_.push_back({found->second, /*taken=*/false, 0});
  held_.erase(found);
}

std::optional<int> AllocationRecording::Find(const void* block) const {
  const auto found = held_.find(block);
  if (found == held_.end()) return std::nullopt;
  return found->second;
}

}  // namespace sim
}  // namespace tandem
