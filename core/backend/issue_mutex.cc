#include "core/backend/issue_mutex.h"

namespace tandem {

absl::Mutex& IssueMutex() {
  static auto* const mutex = new absl::Mutex;
  return *mutex;
}

}  // namespace tandem
