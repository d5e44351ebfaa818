#include "core/testing/thread_ranks.h"

#include <ATen/Parallel.h>
#include <glog/logging.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/store/store.h"

namespace tandem {
namespace {

thread_local int this_threads_rank = 0;

// What the threads have come to.
class Outcome {
 public:
  explicit Outcome(int n) {
    for (int r = 0; r < n; ++r) running_.insert(r);
  }

  void Report(int rank, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    running_.erase(rank);
    if (first_.ok()) first_ = Annotate(status, absl::StrCat("rank ", rank));
  }

  absl::Status Wait(absl::Duration patience) {
    absl::MutexLock lock(&mutex_);
    const auto done = [this] { return running_.empty(); };
    // The threads use what the caller has on its stack: nobody can go on.
    CHECK(mutex_.AwaitWithTimeout(absl::Condition(&done), patience))
        << "ranks " << absl::StrJoin(running_, ", ")
        << " did not return within " << absl::FormatDuration(patience)
        << "; the first failure so far: " << first_;
    return first_;
  }

 private:
  absl::Mutex mutex_;
  std::set<int> running_;
  absl::Status first_;
};

}  // namespace

std::string TestBackend() {
  const char* const told = std::getenv("TANDEM_TEST_BACKEND");
  return told == nullptr ? CommunicatorOptions().backend : told;
}

absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn) {
  CommunicatorOptions options;
  options.backend = TestBackend();
  options.timeout = std::chrono::seconds(30);
  return RunThreadRanks(n, fn, options);
}

absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn,
    const CommunicatorOptions& options) {
  return RunThreadRanks(
      n, fn, [&] { return options; }, options.timeout);
}

absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn,
    const std::function<CommunicatorOptions()>& options_of,
    std::chrono::milliseconds timeout) {
  const StorePtr store = NewHashStore(timeout);
  Outcome outcome(n);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      this_threads_rank = rank;
      at::init_num_threads();  // as a process's only thread has it
      outcome.Report(
          rank, CatchTorch([&]() -> absl::Status {
            TANDEM_ASSIGN_OR_RETURN(
                std::unique_ptr<Communicator> world,
                Communicator::Create(store, rank, n, "world", options_of()));
            return fn(*world);
          }));
    });
  }
  const absl::Status first =
      outcome.Wait(2 * absl::FromChrono(timeout) + absl::Minutes(1));
  for (std::thread& thread : threads) thread.join();
  return first;
}

bool AwaitOtherRanks(const std::function<bool()>& condition) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

int ThisThreadsRank() { return this_threads_rank; }

}  // namespace tandem
