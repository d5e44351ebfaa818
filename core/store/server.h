// Store server: whom to name when the store of a job is silent.

#ifndef TANDEM_CORE_STORE_SERVER_H_
#define TANDEM_CORE_STORE_SERVER_H_

#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {

enum class StoreServer { kRankZero, kLauncher };

// What a client of a store may know of its server.
class KnownStore {
 public:
  virtual ~KnownStore() = default;
  // The server of the store; none: not known.
  virtual std::optional<StoreServer> server() const = 0;
  // "HOST:PORT", as this client was given them.
  virtual std::string address() const = 0;
  // Describes who was turned away, in words that end a sentence; empty for
  // nobody. Asks the server, and throws as the store does.
  virtual std::string DescribeRejected() { return ""; }
};

// A client of a TCPStore that knows who serves it.
class StoreClient : public c10d::TCPStore, public KnownStore {
 public:
  StoreClient(const std::string& host, const c10d::TCPStoreOptions& options,
              StoreServer server)
      : TCPStore(host, options), server_(server) {}

  std::optional<StoreServer> server() const override { return server_; }
  std::string address() const override {
    return absl::StrCat(getHost(), ":", getPort());
  }

 private:
  const StoreServer server_;
};

// What to say of `store`, or of what a PrefixStore stands before, when a call
// of it ended with `error`: "not heard of: rank 0 of the job, which serves the
// store: it does not answer (10.0.0.1:29500)", or "... its connection is lost"
// for Unavailable (the server's process has ended, or the network). Where it is
// not known who serves: "the store, which rank 0 or the launcher serves, does
// not answer".
std::string DescribeSilence(const c10::intrusive_ptr<c10d::Store>& store,
                            const absl::Status& error);

// How many strangers the server of a guarded store has turned away, and from
// where the last one came: "; 2 connections that ..." Empty for none, and where
// the store does not answer within 5 s.
std::string DescribeRejected(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_SERVER_H_
