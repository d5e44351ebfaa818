#include "core/failure_note.h"

#include <algorithm>

#include "core/call_within.h"
#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kSlice(200);
constexpr std::chrono::seconds kNoteTime(2);

}  // namespace

void FailureNote::Tell(const std::string& what) const {
  CallWithin<bool>(kNoteTime,
                   [store = store_, key = key_, what] {
                     store->compareSet(key, std::string(), what);
                     return true;
                   })
      .status()
      .IgnoreError();
}

absl::Status FailureNote::Check() const {
  std::string note;
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    if (store_->check({key_})) note = store_->get_to_str(key_);
  }));
  return note.empty() ? absl::OkStatus() : absl::UnavailableError(note);
}

absl::Status FailureNote::Await(
    Clock::time_point deadline,
    absl::FunctionRef<absl::Status(Clock::time_point)> step) const {
  while (true) {
    absl::Status status = step(std::min(deadline, Clock::now() + kSlice));
    if (!absl::IsDeadlineExceeded(status)) return status;
    TANDEM_RETURN_IF_ERROR(Check());
    if (Clock::now() >= deadline) return status;
  }
}

}  // namespace tandem
