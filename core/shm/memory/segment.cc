#include "core/shm/memory/segment.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/round_up.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// Not the private operations: the word may be of several processes.
void Futex(std::atomic<uint32_t>* word, int operation, uint32_t value,
           const timespec* timeout) {
  syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

}  // namespace

void SharedSignal::Add(uint32_t delta) {
  value_.fetch_add(delta);
  if (sleepers_.load() != 0) Futex(&value_, FUTEX_WAKE, INT_MAX, nullptr);
}

void SharedSignal::Sleep(uint32_t seen, std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) return;
  timespec limit;
  limit.tv_sec = timeout.count() / 1000000000;
  limit.tv_nsec = timeout.count() % 1000000000;
  sleepers_.fetch_add(1);
  // The kernel compares once more before it lets the thread sleep.
  Futex(&value_, FUTEX_WAIT, seen, &limit);
  sleepers_.fetch_sub(1);
}

namespace {

constexpr size_t kPage = 4096;

size_t Pages(size_t bytes) { return RoundUp(bytes, kPage); }

size_t PagesAt() { return Pages(sizeof(ShmShared)); }
size_t SlotsAt(int size) {
  return PagesAt() + size * Pages(sizeof(ShmRankPage));
}
size_t MailAt(int size) { return SlotsAt(size) + 2 * size * kSlotBytes; }
size_t MailOffset(int size, int from, int to) {
  return MailAt(size) +
         (static_cast<size_t>(from) * size + to) * Pages(sizeof(ShmMailRing));
}

}  // namespace

absl::StatusOr<OwnedFd> ShmSegment::NewMemory(int size) {
  TANDEM_ASSIGN_OR_RETURN(OwnedFd fd,
                          NewSharedMemory(MailOffset(size, size, 0)));
  // Mail takes memory when it is used.
  TANDEM_RETURN_IF_ERROR(ReserveSharedMemory(fd.get(), 0, MailAt(size)));
  return fd;
}

absl::StatusOr<ShmSegment> ShmSegment::Map(OwnedFd fd, int size) {
  ShmSegment segment;
  TANDEM_ASSIGN_OR_RETURN(
      segment.mapping_,
      SharedMapping::Map(fd.get(), MailOffset(size, size, 0)));
  segment.fd_ = std::move(fd);
  segment.size_ = size;
  return segment;
}

ShmShared& ShmSegment::shared() const {
  return *reinterpret_cast<ShmShared*>(mapping_.data());
}

ShmRankPage& ShmSegment::page(int rank) const {
  return *reinterpret_cast<ShmRankPage*>(mapping_.data() + PagesAt() +
                                         rank * Pages(sizeof(ShmRankPage)));
}

std::byte* ShmSegment::slot(int rank, int which) const {
  return mapping_.data() + SlotsAt(size_) + (2 * rank + which) * kSlotBytes;
}

ShmMailRing& ShmSegment::mail(int from, int to) const {
  return *reinterpret_cast<ShmMailRing*>(mapping_.data() +
                                         MailOffset(size_, from, to));
}

absl::Status ShmSegment::ReserveMail(int from, int to) const {
  return ReserveSharedMemory(fd_.get(), MailOffset(size_, from, to),
                             sizeof(ShmMailRing));
}

ShmRankState ShmSegment::state(int rank) const {
  const uint32_t state = page(rank).state.load();
  return static_cast<ShmRankState>(
      std::min(state, static_cast<uint32_t>(ShmRankState::kDied)));
}

void ShmSegment::SetState(int rank, ShmRankState state,
                          absl::string_view reason) {
  ShmRankPage& rank_page = page(rank);
  if (this->state(rank) != ShmRankState::kPresent) return;
  if (state == ShmRankState::kGaveUp) {
    // Whoever reads the state reads the reason: nobody writes it after that.
    if (rank_page.reasons.fetch_add(1) != 0) return;
    const size_t n = std::min(reason.size(), ShmRankPage::kReasonBytes - 1);
    std::memcpy(rank_page.reason, reason.data(), n);
    rank_page.reason[n] = '\0';
  }
  uint32_t present = static_cast<uint32_t>(ShmRankState::kPresent);
  rank_page.state.compare_exchange_strong(present,
                                          static_cast<uint32_t>(state));
  RaiseAlarm();
}

std::string ShmSegment::reason(int rank) const {
  const char* const text = page(rank).reason;
  return std::string(text, strnlen(text, ShmRankPage::kReasonBytes));
}

void ShmSegment::RaiseAlarm() const {
  shared().finished.Add(kAlarm);
  for (int r = 0; r < size_; ++r) {
    page(r).rounds.Add(kAlarm);
    page(r).mail.Add(1);
    page(r).idle_mail.Add(1);
  }
}

namespace {

std::vector<int> RanksIn(const ShmSegment& segment, ShmRankState state,
                         absl::FunctionRef<bool(int rank)> matters) {
  std::vector<int> ranks;
  for (int r = 0; r < segment.size(); ++r) {
    if (segment.state(r) == state && matters(r)) ranks.push_back(r);
  }
  return ranks;
}

std::string GaveUp(const ShmSegment& segment, int rank) {
  const std::string reason = segment.reason(rank);
  return absl::StrCat(" gave up", reason.empty() ? "" : ": ", reason);
}

}  // namespace

std::string NamesOfRanks(const ShmSegment& segment,
                         const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) {
    names.push_back(absl::StrCat(segment.name(rank), " (pid ",
                                 segment.page(rank).pid.load(), ")"));
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", ShortList(names));
}

absl::Status CheckPresence(const ShmSegment& segment, int me,
                           absl::FunctionRef<bool(int rank)> matters) {
  if (segment.state(me) == ShmRankState::kGaveUp) {
    return absl::UnavailableError(
        absl::StrCat("this rank", GaveUp(segment, me)));
  }
  const std::vector<int> died = RanksIn(segment, ShmRankState::kDied, matters);
  if (!died.empty()) {
    return absl::UnavailableError(
        absl::StrCat(NamesOfRanks(segment, died), " died"));
  }
  const std::vector<int> gave_up =
      RanksIn(segment, ShmRankState::kGaveUp, matters);
  if (!gave_up.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "rank ", segment.name(gave_up[0]), GaveUp(segment, gave_up[0])));
  }
  const std::vector<int> left = RanksIn(segment, ShmRankState::kLeft, matters);
  if (left.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(NamesOfRanks(segment, left), " left the group"));
}

}  // namespace tandem
