// For tests: the ranks of a group as threads of one process, and a store that
// counts what they ask of it.

#ifndef TANDEM_CORE_TESTING_THREAD_RANKS_H_
#define TANDEM_CORE_TESTING_THREAD_RANKS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace tandem {

// The backend of groups of ranks: $TANDEM_TEST_BACKEND, or CommunicatorOptions'
// own. With "sim_nccl" ($TANDEM_SIM_ASYNC then makes simulated devices
// asynchronous) tests whose tensors lie on such a device rehearse NCCL.
std::string TestBackend();

// Calls `fn` on `n` threads, each with its rank's communicator: TestBackend()
// over a HashStore and loopback, named "world". Returns the first failure, in
// time, as "rank 2: ..."; exceptions are failures too.
//
// Collectives end by `options.timeout`, 30 s unless it is given. A thread that
// waits for something else cannot be stopped: when ranks have not returned
// after twice the timeout and a minute, the process dies with a message that
// names them.
//
//   absl::Status status = RunThreadRanks(3, [](Communicator& world) {
//     return world.Barrier();
//   });
//   EXPECT_TRUE(status.ok()) << status;
absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn);
absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn,
    const CommunicatorOptions& options);
// Each with options of its own, which `options_of` gives on the rank's thread.
absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn,
    const std::function<CommunicatorOptions()>& options_of,
    std::chrono::milliseconds timeout);

// Waits until `condition` holds, which tells what other ranks' threads have
// done: half a minute at most. Returns whether it holds. By this a rank comes
// later than the others, or leaves last, however busy the machine is.
bool AwaitOtherRanks(const std::function<bool()>& condition);

// The rank that the calling thread is in RunThreadRanks; 0 elsewhere.
int ThisThreadsRank();

// A store that counts the operations on it: one rank's view of a store that
// others use, too. Each call counts once, which a TCPStore answers in one round
// trip, or two where it waits for a key first (get, multiGet).
class CountingStore : public c10d::PrefixStore {
 public:
  explicit CountingStore(c10::intrusive_ptr<c10d::Store> store)
      : PrefixStore("counted", std::move(store)) {}

  int64_t operations() const { return operations_; }

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    ++operations_;
    PrefixStore::set(key, value);
  }
  std::vector<uint8_t> compareSet(
      const std::string& key, const std::vector<uint8_t>& expected,
      const std::vector<uint8_t>& desired) override {
    ++operations_;
    return PrefixStore::compareSet(key, expected, desired);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    ++operations_;
    return PrefixStore::get(key);
  }
  int64_t add(const std::string& key, int64_t value) override {
    ++operations_;
    return PrefixStore::add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    ++operations_;
    return PrefixStore::deleteKey(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    ++operations_;
    return PrefixStore::check(keys);
  }
  void wait(const std::vector<std::string>& keys) override {
    ++operations_;
    PrefixStore::wait(keys);
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    ++operations_;
    PrefixStore::wait(keys, timeout);
  }
  void append(const std::string& key,
              const std::vector<uint8_t>& value) override {
    ++operations_;
    PrefixStore::append(key, value);
  }
  std::vector<std::vector<uint8_t>> multiGet(
      const std::vector<std::string>& keys) override {
    ++operations_;
    return PrefixStore::multiGet(keys);
  }

 private:
  std::atomic<int64_t> operations_{0};
};

}  // namespace tandem

#endif  // TANDEM_CORE_TESTING_THREAD_RANKS_H_
