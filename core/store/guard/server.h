// Guarded server: a key-value table for those alone who show that they know a
// secret.

#ifndef TANDEM_CORE_STORE_GUARD_SERVER_H_
#define TANDEM_CORE_STORE_GUARD_SERVER_H_

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "core/base/owned_fd.h"

namespace tandem {

// The key under which members find how many strangers were turned away, and
// where the last one came from, in words; not there while there were none.
constexpr char kStrangersKey[] = "tandem/strangers";

// Serves on a thread of its own until it is destroyed. A client that says
// nothing, too little, too much or something else holds up nobody: it has 10
// seconds to show the secret, 64 connections wait for that at most (beyond them
// the oldest goes), and where the process may open no more files the oldest
// goes as well. Strangers are logged, every 10 s at most.
class GuardServer {
 public:
  // `listener`: a socket that listens, over TCP. Requires a secret that is not
  // empty.
  static absl::StatusOr<std::unique_ptr<GuardServer>> Start(
      OwnedFd listener, const std::string& secret);
  ~GuardServer();
  GuardServer(const GuardServer&) = delete;
  GuardServer& operator=(const GuardServer&) = delete;

 private:
  explicit GuardServer(OwnedFd stop) : stop_(std::move(stop)) {}

  OwnedFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_SERVER_H_
