// Visitors of a guarded server: its connections, those that have yet to show
// the secret in the order in which they came, and how many did not.

#ifndef TANDEM_CORE_STORE_GUARD_VISITORS_H_
#define TANDEM_CORE_STORE_GUARD_VISITORS_H_

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/base/owned_fd.h"
#include "core/store/guard/session.h"

namespace tandem {

struct Visitor {
  OwnedFd fd;
  std::string address;  // "10.0.0.7:4242"
  Session session;
  bool is_over = false;    // after what is still to be sent
  bool must_read = false;  // before it is heard again
};

// Not thread-safe.
class Visitors {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kManners{10};
  static constexpr size_t kMostUnknown = 64;

  // Beyond kMostUnknown the oldest that is unknown goes.
  void Add(Visitor visitor, Clock::time_point now);
  // Null: nobody of that descriptor.
  Visitor* Find(int fd);
  // Is unknown no longer.
  void NoteMember(int fd);
  // One who is unknown and has said something, or has let `kManners` pass, was
  // a stranger.
  void Remove(int fd);
  // Those whose time is over.
  void RemoveSlow(Clock::time_point now);
  // False: nobody is unknown.
  bool RemoveOldestUnknown();

  // When the next one's time is over; max() where nobody is unknown.
  Clock::time_point NextEnd() const;

  int strangers() const { return strangers_; }
  // "2 connections that did not show the job's secret were turned away from the
  // store, the last from 10.0.0.7:4242".
  std::string DescribeStrangers() const;

 private:
  struct Waiting {
    int fd;
    Clock::time_point until;
  };

  void NoteStranger(const Visitor& visitor);

  std::unordered_map<int, Visitor> visitors_;  // by descriptor
  std::list<Waiting> unknown_;                 // the first has waited longest
  int strangers_ = 0;
  std::string last_stranger_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_VISITORS_H_
