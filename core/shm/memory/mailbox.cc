#include "core/shm/memory/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

struct Header {
  int64_t tag;
  uint64_t bytes;
};

// The most that is written before the reader is told: it reads one piece while
// the next is written.
constexpr size_t kPieceBytes = 64 << 10;

// Copies between an array and the ring at `position`, around its end.
template <typename Copy>
void AroundTheEnd(uint64_t position, size_t bytes, Copy copy) {
  const size_t at = position % kMailBytes;
  const size_t first = std::min(bytes, kMailBytes - at);
  if (first > 0) copy(at, 0, first);
  if (bytes > first) copy(0, first, bytes - first);
}

size_t Room(const ShmMailRing& ring) {
  return kMailBytes - (ring.written.load() - ring.read.load());
}

size_t Available(const ShmMailRing& ring) {
  // Not more than can be, whatever the other end says.
  return std::min<uint64_t>(ring.written.load() - ring.read.load(), kMailBytes);
}

void Write(ShmMailRing& ring, const void* data, size_t bytes) {
  const uint64_t position = ring.written.load(std::memory_order_relaxed);
  const auto* const from = static_cast<const std::byte*>(data);
  AroundTheEnd(position, bytes, [&](size_t at, size_t offset, size_t n) {
    std::memcpy(ring.data + at, from + offset, n);
  });
  ring.written.store(position + bytes);
}

void Read(ShmMailRing& ring, void* data, size_t bytes) {
  const uint64_t position = ring.read.load(std::memory_order_relaxed);
  auto* const to = static_cast<std::byte*>(data);
  if (to != nullptr) {
    AroundTheEnd(position, bytes, [&](size_t at, size_t offset, size_t n) {
      std::memcpy(to + offset, ring.data + at, n);
    });
  }
  ring.read.store(position + bytes);
}

absl::Status CheckSize(const ShmMessage& wanted, size_t came) {
  if (wanted.bytes == came) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", wanted.peer, " sent ", came, " bytes with tag ", wanted.tag,
      ", where ", wanted.bytes, " bytes were to be received"));
}

}  // namespace

bool ShmOutbox::Push(ShmMailRing& ring) {
  bool moved = false;
  while (!waiting_.empty()) {
    ShmMessage& first = *waiting_.front();
    if (!announced_) {
      if (Room(ring) < sizeof(Header)) return moved;
      const Header header{first.tag, first.bytes};
      Write(ring, &header, sizeof(header));
      announced_ = moved = true;
    }
    const size_t n = std::min({Room(ring), first.bytes - sent_, kPieceBytes});
    if (n > 0) {
      Write(ring, first.data + sent_, n);
      sent_ += n;
      moved = true;
    }
    if (sent_ < first.bytes) return moved;
    first.Finish(absl::OkStatus());
    waiting_.pop_front();
    announced_ = false;
    sent_ = 0;
  }
  return moved;
}

void ShmOutbox::FailAll(const absl::Status& status) {
  for (const ShmMessagePtr& message : waiting_) message->Finish(status);
  waiting_.clear();
}

void ShmInbox::Post(ShmMessagePtr message) {
  const auto found = std::find_if(aside_.begin(), aside_.end(),
                                  [&](const ReceivedMessage& letter) {
                                    return letter.tag == message->tag;
                                  });
  if (found == aside_.end()) {
    wanted_.push_back(std::move(message));
    return;
  }
  Deliver(*found, *message);
  aside_.erase(found);
}

void ShmInbox::Deliver(const ReceivedMessage& letter, ShmMessage& message) {
  const absl::Status fits = CheckSize(message, letter.body.size());
  if (fits.ok() && message.bytes > 0) {
    std::memcpy(message.data, letter.body.data(), message.bytes);
  }
  message.Finish(fits);
}

ShmMessagePtr ShmInbox::TakeWanted(int64_t tag) {
  const auto found =
      std::find_if(wanted_.begin(), wanted_.end(),
                   [&](const ShmMessagePtr& one) { return one->tag == tag; });
  if (found == wanted_.end()) return nullptr;
  ShmMessagePtr message = std::move(*found);
  wanted_.erase(found);
  return message;
}

bool ShmInbox::Pull(ShmMailRing& ring) {
  bool moved = false;
  while (!wanted_.empty() || reading_) {
    if (!reading_) {
      if (!StartNext(ring)) return moved;
      moved = true;
    }
    const size_t before = read_;
    const bool whole = ReadBody(ring);
    // Nothing may have come of a sender that is slow, or dead.
    moved |= read_ > before;
    if (!whole) return moved;
    EndCurrent();
  }
  return moved;
}

bool ShmInbox::StartNext(ShmMailRing& ring) {
  if (Available(ring) < sizeof(Header)) return false;
  Header header;
  Read(ring, &header, sizeof(header));
  reading_ = true;
  bytes_ = header.bytes;
  read_ = 0;
  reader_ = TakeWanted(header.tag);
  if (reader_ == nullptr) {
    received_.tag = header.tag;
    received_.body.resize(bytes_);
  }
  return true;
}

// All of it? What does not fit its reader is read into nothing.
bool ShmInbox::ReadBody(ShmMailRing& ring) {
  std::byte* to = received_.body.data();
  if (reader_ != nullptr) {
    to = reader_->bytes == bytes_ ? reader_->data : nullptr;
  }
  const size_t n = std::min(Available(ring), bytes_ - read_);
  if (n > 0) Read(ring, to == nullptr ? nullptr : to + read_, n);
  read_ += n;
  return read_ == bytes_;
}

void ShmInbox::EndCurrent() {
  reading_ = false;
  if (reader_ != nullptr) {
    reader_->Finish(CheckSize(*reader_, bytes_));
    reader_.reset();
    return;
  }
  // Somebody may have come to want it while it was read.
  ReceivedMessage letter = std::exchange(received_, {});
  const ShmMessagePtr message = TakeWanted(letter.tag);
  if (message != nullptr) {
    Deliver(letter, *message);
  } else {
    aside_.push_back(std::move(letter));
  }
}

void ShmInbox::FailAll(const absl::Status& status) {
  if (reader_ != nullptr) reader_->Finish(status);
  reader_.reset();
  for (const ShmMessagePtr& message : wanted_) message->Finish(status);
  wanted_.clear();
}

}  // namespace tandem
