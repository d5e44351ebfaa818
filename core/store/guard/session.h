// Server's side of a connection, from the first byte to the last: handshake,
// then requests. Bytes in, bytes out; no sockets.

#ifndef TANDEM_CORE_STORE_GUARD_SESSION_H_
#define TANDEM_CORE_STORE_GUARD_SESSION_H_

#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/base/owned_fd.h"
#include "core/store/guard/key_values.h"
#include "core/store/guard/protocol.h"

namespace tandem {

// Not thread-safe.
class Session {
 public:
  // `nonce`: a new one, kNonceBytes. A greeting is to be sent at once.
  Session(std::string secret, std::string nonce);

  // Whether it has shown that it knows the secret.
  bool is_member() const { return opener_.has_value(); }
  // Whether anything has come.
  bool has_spoken() const { return has_spoken_; }

  // Takes what has come. False when it goes no further: the secret was not
  // shown, or a message is not the member's; what is to be sent is then the
  // last. Requests are done on `table`. No more than a proof is kept of a
  // client that is no member.
  bool Take(absl::string_view bytes, KeyValues* table);

  // Whether requests may stand in line whose answers would be too much at once
  // to keep: a Take of nothing goes on with them, when the output is sent.
  bool has_more() const { return has_more_; }

  // What is to be sent, for the caller to take from its front.
  std::string& output() { return output_; }

 private:
  bool TakeProof(absl::string_view* bytes);
  void Join();

  const std::string secret_;
  const std::string nonce_;
  std::string proof_;
  std::string output_;
  bool has_spoken_ = false;
  bool has_more_ = false;
  std::optional<FrameOpener> opener_;
  std::optional<FrameSealer> sealer_;
};

// Connections of a guarded server: all of them, those that have yet to show the
// secret in the order in which they came, and how many did not.

struct ServerConnection {
  OwnedFd fd;
  std::string address;  // "10.0.0.7:4242"
  Session session;
  bool is_over = false;    // after what is still to be sent
  bool must_read = false;  // before it is heard again
};

// Not thread-safe.
class ServerConnections {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kHandshakeTimeout{10};
  static constexpr size_t kMostUnknown = 64;

  // Beyond kMostUnknown the oldest that is unknown goes.
  void Add(ServerConnection connection, Clock::time_point now);
  // Null: nobody of that descriptor.
  ServerConnection* Find(int fd);
  // Is unknown no longer.
  void NoteMember(int fd);
  // One who is unknown and has said something, or has let `kHandshakeTimeout`
  // pass, was a stranger.
  void Remove(int fd);
  // Removes the connections whose time is over.
  void RemoveSlow(Clock::time_point now);
  // False: nobody is unknown.
  bool RemoveOldestUnknown();

  // When the next one's time is over; max() where nobody is unknown.
  Clock::time_point NextEnd() const;

  int strangers() const { return strangers_; }
  // "2 connections that did not show the job's secret were turned away from the
  // store, the last from 10.0.0.7:4242".
  std::string DescribeRejected() const;

 private:
  struct Waiting {
    int fd;
    Clock::time_point until;
  };

  void NoteStranger(const ServerConnection& connection);

  std::unordered_map<int, ServerConnection> connections_;  // by descriptor
  std::list<Waiting> unknown_;  // the first has waited longest
  int strangers_ = 0;
  std::string last_stranger_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_SESSION_H_
