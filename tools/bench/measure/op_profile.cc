#include "tools/bench/measure/op_profile.h"

#include <ATen/record_function.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem {
namespace {

double Milliseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

// Processor time of this thread: what other processes do on its core does not
// count.
double ThreadMs() { return Milliseconds(CLOCK_THREAD_CPUTIME_ID); }

double ProcessMs() { return Milliseconds(CLOCK_PROCESS_CPUTIME_ID); }

struct OpTime {
  double ms = 0;
  int64_t calls = 0;
};

struct Totals {
  absl::Mutex mutex;
  std::map<std::string, OpTime> ops ABSL_GUARDED_BY(mutex);
};

Totals& AllOps() {
  static auto* const totals = new Totals;
  return *totals;
}

// An operator that runs on this thread.
struct Running : at::ObserverContext {
  double started = 0;
  double inner = 0;  // ms in operators that it called
  Running* outer = nullptr;
};

thread_local Running* innermost = nullptr;

std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction&) {
  auto running = std::make_unique<Running>();
  running->outer = std::exchange(innermost, running.get());
  running->started = ThreadMs();
  return running;
}

void End(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* running = static_cast<Running*>(context);
  const double ms = ThreadMs() - running->started;
  innermost = running->outer;
  if (innermost != nullptr) innermost->inner += ms;
  absl::MutexLock lock(&AllOps().mutex);
  OpTime& total = AllOps().ops[function.name()];
  total.ms += ms - running->inner;
  ++total.calls;
}

}  // namespace

OpProfile::OpProfile() : started_ms_(ProcessMs()) {
  {
    absl::MutexLock lock(&AllOps().mutex);
    AllOps().ops.clear();
  }
  handle_ =
      at::addGlobalCallback(at::RecordFunctionCallback(Begin, End)
                                .scopes({at::RecordScope::FUNCTION,
                                         at::RecordScope::BACKWARD_FUNCTION}));
}

OpProfile::~OpProfile() { at::removeCallback(handle_); }

nlohmann::json OpProfile::Take(int64_t steps) const {
  const double cpu_ms = ProcessMs() - started_ms_;
  absl::MutexLock lock(&AllOps().mutex);
  std::vector<std::pair<std::string, OpTime>> ops(AllOps().ops.begin(),
                                                  AllOps().ops.end());
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
    return a.second.ms > b.second.ms;
  });
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, time] : ops) {
    list.push_back({{"name", name},
                    {"ms", time.ms / steps},
                    {"calls", static_cast<double>(time.calls) / steps}});
  }
  return {{"cpu_ms", cpu_ms / steps}, {"ops", list}};
}

}  // namespace tandem
