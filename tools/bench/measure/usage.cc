#include "tools/bench/measure/usage.h"

#include <sys/resource.h>

#include <chrono>

namespace tandem {
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
