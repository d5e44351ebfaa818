#include "core/base/out_of_memory.h"

#include <atomic>

namespace tandem {
namespace {

std::atomic<OutOfMemoryNote> current = {nullptr};

}  // namespace

void SetOutOfMemoryNote(OutOfMemoryNote note) { current.store(note); }

std::string NoteOnOutOfMemory() {
  const OutOfMemoryNote note = current.load();
  return note == nullptr ? "" : note();
}

}  // namespace tandem
