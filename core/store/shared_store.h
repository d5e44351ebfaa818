// Shared store client: threads share it, and one that waits holds up no other.

#ifndef TANDEM_CORE_STORE_SHARED_STORE_H_
#define TANDEM_CORE_STORE_SHARED_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace tandem {

// Waits until `store` has all keys by asking it: at first after a millisecond,
// later ten times a second (less often for very many keys). Throws
// DistStoreError after `timeout`; none: c10d::Store::kNoTimeout.
void WaitByAsking(c10d::Store& store, const std::vector<std::string>& keys,
                  std::chrono::milliseconds timeout);

// A client of a TCPStore has one connection and one lock, which a wait keeps to
// its end: a thread that only wants to leave a note, or to look for one, is
// held up for as long as another waits, and takes the store to be silent. Here
// a wait asks now and then, and lets others go in between. One connection does
// for a process, so the server has one a rank.
//
// Thread-safe.
class SharedStore : public c10d::Store {
 public:
  explicit SharedStore(c10::intrusive_ptr<c10d::Store> client);

  const c10::intrusive_ptr<c10d::Store>& client() const { return client_; }

  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  using c10d::Store::compareSet;
  std::vector<uint8_t> compareSet(const std::string& key,
                                  const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  // Waits for the key, as the client's does.
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key,
              const std::vector<uint8_t>& value) override;
  // Waits for the keys.
  std::vector<std::vector<uint8_t>> multiGet(
      const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override;

 private:
  const c10::intrusive_ptr<c10d::Store> client_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_SHARED_STORE_H_
