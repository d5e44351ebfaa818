// For tests: a store that counts the operations on it.

#ifndef TANDEM_CORE_TESTING_COUNTING_STORE_H_
#define TANDEM_CORE_TESTING_COUNTING_STORE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

namespace tandem {

// One rank's view of a store that others use, too. Each call counts once, which
// a TCPStore answers in one round trip, or two where it waits for a key first
// (get, multiGet).
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

#endif  // TANDEM_CORE_TESTING_COUNTING_STORE_H_
