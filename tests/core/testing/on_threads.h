// Threads of a test that run beside each other, for tests.

#ifndef TANDEM_TESTS_CORE_TESTING_ON_THREADS_H_
#define TANDEM_TESTS_CORE_TESTING_ON_THREADS_H_

#include <functional>
#include <thread>
#include <vector>

namespace tandem {

// Calls `fn` on `n` threads, with the number of each, and waits for them all.
inline void OnThreads(int n, const std::function<void(int)>& fn) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back(fn, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_ON_THREADS_H_
