// Key-value store where ranks leave notes for each other before they can talk:
// c10d's stores, with errors as Status.
//
// Include <torch/csrc/distributed/c10d/Store.hpp> to use a store itself.

#ifndef TANDEM_CORE_STORE_STORE_H_
#define TANDEM_CORE_STORE_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

enum class StoreServer;

using StorePtr = c10::intrusive_ptr<c10d::Store>;

struct HostedStore {
  StorePtr store;  // lives as long as this, and so does the server
  int port = 0;    // where it listens
};

// Serves a TCPStore on `host`, an address or a name of this machine, and on
// nothing else: c10d's own server would listen on every interface, so the
// socket is bound here. Port 0 lets the kernel choose. `timeout` bounds the
// waits of the returned store. InvalidArgument when `host` is not of this
// machine; AlreadyExists when the port is in use.
absl::StatusOr<HostedStore> ServeTcpStore(const std::string& host, int port,
                                          std::chrono::milliseconds timeout);

// Connects to a TCPStore, trying again until `timeout`: the server may start
// later. DeadlineExceeded or Unavailable name `host` and `port`;
// InvalidArgument a host that could not be resolved for 10 s. `server` is whom
// to name when the store is silent (core/store/server.h).
absl::StatusOr<StorePtr> ConnectTcpStore(
    const std::string& host, int port, std::chrono::milliseconds timeout,
    std::optional<StoreServer> server = std::nullopt);

// A store in a file that all ranks see, removed when the last rank leaves.
// `key_prefix` as in Rendezvous. FailedPrecondition when the file is of an
// earlier job that did not end well (this rank has joined it before), and the
// errors of MakeStoreFile (core/store/store.cc).
absl::StatusOr<StorePtr> OpenFileStore(const std::string& path, int rank,
                                       int world_size,
                                       const std::string& key_prefix,
                                       std::chrono::milliseconds timeout);

// Keys behind `prefix`; where that is empty, `store` itself.
StorePtr WithPrefix(StorePtr store, const std::string& prefix);

// What stands at `key` now; empty: nothing. Throws what the store throws.
std::string TextAt(c10d::Store& store, const std::string& key);

// A store for the threads of this process.
StorePtr NewHashStore(std::chrono::milliseconds timeout);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_STORE_H_
