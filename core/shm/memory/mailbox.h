// Message ring between two ranks: its two ends.

#ifndef TANDEM_CORE_SHM_MEMORY_MAILBOX_H_
#define TANDEM_CORE_SHM_MEMORY_MAILBOX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/shm/memory/segment.h"

namespace tandem {

// A send or a receive.
struct ShmMessage {
  int peer = 0;
  int64_t tag = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<void> keep;  // what must live until it is done

  bool done() const { return finished.load(std::memory_order_acquire); }
  void Finish(absl::Status with) {
    keep.reset();
    status = std::move(with);
    finished.store(true, std::memory_order_release);
  }

  absl::Status status;  // once it is done
  std::atomic<bool> finished{false};
  std::atomic<bool> cancelled{false};  // a wait for it, not the message
};

using ShmMessagePtr = std::shared_ptr<ShmMessage>;

// The writing end. Not thread-safe.
class ShmOutbox {
 public:
  void Post(ShmMessagePtr message) { waiting_.push_back(std::move(message)); }
  // Writes what fits into the ring, of a large message a piece, after which the
  // reader should be told; was it anything? Finishes messages.
  bool Push(ShmMailRing& ring);
  bool idle() const { return waiting_.empty(); }
  void FailAll(const absl::Status& status);

 private:
  std::deque<ShmMessagePtr> waiting_;
  bool announced_ = false;  // the first one's header
  size_t sent_ = 0;         // of the first one
};

// The reading end. Not thread-safe.
class ShmInbox {
 public:
  void Post(ShmMessagePtr message);
  // Reads what is in the ring, while anybody wants something from it; was it
  // anything? Finishes messages. What nobody wants yet, but stands before what
  // somebody wants, is put aside.
  bool Pull(ShmMailRing& ring);
  bool idle() const { return wanted_.empty() && reader_ == nullptr; }
  void FailAll(const absl::Status& status);

 private:
  struct ReceivedMessage {  // a message that has come
    int64_t tag = 0;
    std::vector<std::byte> body;
  };

  // The first that wants this tag, or null.
  ShmMessagePtr TakeWanted(int64_t tag);
  bool StartNext(ShmMailRing& ring);
  bool ReadBody(ShmMailRing& ring);
  void EndCurrent();
  static void Deliver(const ReceivedMessage& letter, ShmMessage& message);

  std::list<ShmMessagePtr> wanted_;
  std::list<ReceivedMessage> aside_;
  // The message that is being read: for `reader_`, or else into `received_`.
  bool reading_ = false;
  ShmMessagePtr reader_;
  ReceivedMessage received_;
  size_t bytes_ = 0;
  size_t read_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_MAILBOX_H_
