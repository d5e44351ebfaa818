// Exceptions of LibTorch as absl::Status: the boundary between LibTorch, which
// throws, and tandem, which returns.
//
//   TANDEM_RETURN_IF_ERROR(CatchTorch([&] { module->load(archive); },
//                                     "load weights.pt"));
//   TANDEM_ASSIGN_OR_RETURN(at::Tensor y, CatchTorchOr([&] { return f(x); }));
//
// The message keeps what the exception has to say and drops source locations
// and stack frames. Codes:
//   InvalidArgument    what TORCH_CHECK refuses: shapes, dtypes, values
//   OutOfRange         c10::IndexError, std::out_of_range
//   Unimplemented      c10::NotImplementedError
//   ResourceExhausted  out of memory, on any device, or of threads
//   DeadlineExceeded   a store, a connection or a collective timed out
//   Unavailable        a connection to another process broke or was refused
//   Internal           all else, LibTorch's own assertions included

#ifndef TANDEM_CORE_BASE_TORCH_STATUS_H_
#define TANDEM_CORE_BASE_TORCH_STATUS_H_

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Out-of-memory note: what a program adds to LibTorch's out-of-memory errors.

// What is said behind a device's c10::OutOfMemoryError where it becomes a
// Status (torch_status.h): who held the memory, and what to do. May return
// nothing; must not throw. Null: no note.
using OutOfMemoryNote = std::string (*)();

// Thread-safe.
void SetOutOfMemoryNote(OutOfMemoryNote note);

// What the note says now; empty without one.
std::string NoteOnOutOfMemory();

// What an exception's text says, without source locations and stack frames.
std::string CleanTorchMessage(absl::string_view what);

// The exception being handled, as a Status. Call it inside a catch block only.
// `what`, when not empty, is put in front: "load weights.pt: file not found".
absl::Status StatusOfCurrentException(absl::string_view what = "");

// `status` with "what: " in front of its message; unchanged when it is OK or
// `what` is empty.
absl::Status Annotate(const absl::Status& status, absl::string_view what);

namespace torch_status_internal {

absl::Status Catch(absl::FunctionRef<void()> fn, absl::string_view what);

template <typename T>
struct IsStatusOr : std::false_type {};
template <typename T>
struct IsStatusOr<absl::StatusOr<T>> : std::true_type {};

}  // namespace torch_status_internal

// What CatchTorchOr gives for a function that returns T, or a StatusOr of it.
template <typename T>
using OrStatus = std::conditional_t<
    torch_status_internal::IsStatusOr<std::decay_t<T>>::value, std::decay_t<T>,
    absl::StatusOr<std::decay_t<T>>>;

// Calls `fn`, which returns nothing or an absl::Status (handed through, with
// `what` in front).
template <typename F>
absl::Status CatchTorch(F&& fn, absl::string_view what = "") {
  using Result = std::invoke_result_t<F>;
  if constexpr (std::is_same_v<Result, absl::Status>) {
    absl::Status inner;
    absl::Status thrown =
        torch_status_internal::Catch([&] { inner = fn(); }, what);
    return thrown.ok() ? Annotate(inner, what) : thrown;
  } else {
    static_assert(std::is_void_v<Result>,
                  "CatchTorch drops no values: use CatchTorchOr");
    return torch_status_internal::Catch(fn, what);
  }
}

// Calls `fn`, which returns a T or an absl::StatusOr<T>; gives a StatusOr<T>.
template <typename F>
auto CatchTorchOr(F&& fn, absl::string_view what = "") {
  using Result = std::decay_t<std::invoke_result_t<F>>;
  static_assert(!std::is_void_v<Result>, "use CatchTorch");
  std::optional<Result> result;
  absl::Status thrown =
      torch_status_internal::Catch([&] { result.emplace(fn()); }, what);
  if constexpr (torch_status_internal::IsStatusOr<Result>::value) {
    if (!thrown.ok()) return Result(std::move(thrown));
    if (!result->ok()) return Result(Annotate(result->status(), what));
    return *std::move(result);
  } else {
    if (!thrown.ok()) return absl::StatusOr<Result>(std::move(thrown));
    return absl::StatusOr<Result>(*std::move(result));
  }
}

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_TORCH_STATUS_H_
