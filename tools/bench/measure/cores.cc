#include "tools/bench/measure/cores.h"

#include <sched.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <future>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {

int CoreNumber(int index, int count) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return -1;
  if (CPU_COUNT(&cores) < count) return -1;
  int core = 0;
  for (int before = index; !CPU_ISSET(core, &cores) || before-- > 0; ++core) {
  }
  return core;
}

std::vector<int> CoreNumbers(int first, int count, int all) {
  std::vector<int> cores;
  for (int i = first; i < first + count; ++i)
    cores.push_back(CoreNumber(i, all));
  return cores;
}

absl::Status BindToCore(int core) {
  if (core < 0) return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("binding to core ", core));
}

absl::Status OnEachCore(const std::vector<int>& cores,
                        const std::function<absl::Status(size_t index)>& work) {
  std::vector<std::future<absl::Status>> running;
  for (size_t i = 0; i < cores.size(); ++i) {
    running.push_back(std::async(std::launch::async, [&work, &cores, i] {
      TANDEM_RETURN_IF_ERROR(BindToCore(cores[i]));
      return CatchTorch([&] { return work(i); });
    }));
  }
  absl::Status done;
  for (auto& each : running) done.Update(each.get());
  return done;
}

namespace {

double Milliseconds(const timeval& time) {
  return time.tv_sec * 1e3 + time.tv_usec * 1e-3;
}

}  // namespace

Usage Usage::Now() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  Usage result;
  result.wall_ms = std::chrono::duration<double, std::milli>(now).count();
  result.cpu_ms = Milliseconds(used.ru_utime) + Milliseconds(used.ru_stime);
  result.faults = static_cast<double>(used.ru_minflt);
  return result;
}

Usage Usage::operator-(const Usage& earlier) const {
  Usage result;
  result.wall_ms = wall_ms - earlier.wall_ms;
  result.cpu_ms = cpu_ms - earlier.cpu_ms;
  result.faults = faults - earlier.faults;
  return result;
}

}  // namespace tandem
