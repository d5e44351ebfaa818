#include "tools/bench/cores.h"

#include <sched.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace tandem {

int CoreOf(int index, int count) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return -1;
  if (CPU_COUNT(&cores) < count) return -1;
  int core = 0;
  for (int before = index; !CPU_ISSET(core, &cores) || before-- > 0; ++core) {
  }
  return core;
}

absl::Status BindToCore(int core) {
  if (core < 0) return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("binding to core ", core));
}

}  // namespace tandem
