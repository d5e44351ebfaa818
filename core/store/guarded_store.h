// Guarded store: a client of a store that is served to those alone who know the
// job's secret (core/store/guard).

#ifndef TANDEM_CORE_STORE_GUARDED_STORE_H_
#define TANDEM_CORE_STORE_GUARDED_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "core/store/guard/connection.h"
#include "core/store/guard/server.h"
#include "core/store/server.h"

namespace tandem {

// Means what c10d's TCPStore means, and throws its errors: DistNetworkError
// when the connection is lost, DistStoreError after a timeout. Thread-safe: a
// wait asks now and then, and holds up no other thread.
class GuardedStore : public c10d::Store, public KnownStore {
 public:
  // `address`: "HOST:PORT" of its server. `served`: the server that lives as
  // long as this; null for another process's.
  GuardedStore(std::shared_ptr<GuardedConnection> connection,
               std::string address, std::optional<StoreServer> server,
               std::chrono::milliseconds timeout,
               std::shared_ptr<GuardServer> served = nullptr);

  // Shares the connection.
  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  using c10d::Store::compareSet;
  std::vector<uint8_t> compareSet(const std::string& key,
                                  const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key,
              const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(
      const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

  std::optional<StoreServer> server() const override { return server_; }
  std::string address() const override { return address_; }
  std::string DescribeRejected() override;

 private:
  std::vector<std::string> Call(const std::vector<std::string>& request);

  const std::shared_ptr<GuardedConnection> connection_;
  const std::string address_;
  const std::optional<StoreServer> server_;
  const std::shared_ptr<GuardServer> served_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARDED_STORE_H_
