#include "core/store/guard/job_secret.h"

#include "absl/synchronization/mutex.h"

namespace tandem {
namespace {

struct State {
  absl::Mutex mutex;
  std::string secret;
};

State& OfProcess() {
  static State* const state = new State;
  return *state;
}

}  // namespace

void SetJobSecret(const std::string& secret) {
  State& state = OfProcess();
  absl::MutexLock lock(&state.mutex);
  state.secret = secret;
}

std::string JobSecret() {
  State& state = OfProcess();
  absl::MutexLock lock(&state.mutex);
  return state.secret;
}

}  // namespace tandem
