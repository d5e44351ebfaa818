#include "core/base/torch_status.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/system_error.h"

namespace tandem {
namespace {

std::atomic<OutOfMemoryNote> current = {nullptr};

}  // namespace

void SetOutOfMemoryNote(OutOfMemoryNote note) { current.store(note); }

std::string NoteOnOutOfMemory() {
  const OutOfMemoryNote note = current.load();
  return note == nullptr ? "" : note();
}

namespace {

// Whatever the case of `text`; the parts are in lower case.
bool ContainsAny(absl::string_view text,
                 std::initializer_list<absl::string_view> parts) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (absl::string_view part : parts) {
    if (absl::StrContains(lower, part)) return true;
  }
  return false;
}

// Gloo and the stores say by text alone what went wrong. Timeouts first: their
// messages may also speak of the connection.
absl::StatusCode CodeOfText(absl::string_view text, absl::StatusCode other) {
  if (ContainsAny(text, {"internal assert failed"})) {
    return absl::StatusCode::kInternal;
  }
  if (ContainsAny(text, {"can't allocate memory", "not enough memory",
                         "out of memory"})) {
    return absl::StatusCode::kResourceExhausted;
  }
  if (ContainsAny(text, {"timed out", "timeout", "time out"})) {
    return absl::StatusCode::kDeadlineExceeded;
  }
  if (ContainsAny(text, {"closed by peer", "reset by peer", "refused",
                         "broken pipe", "socket closed", "socket is closed",
                         "remote peer", "failed to recv", "failed to send",
                         "connection was likely closed", "connectfullmesh"})) {
    return absl::StatusCode::kUnavailable;
  }
  return other;
}

absl::Status MakeStatus(absl::StatusCode code, absl::string_view text,
                        absl::string_view what) {
  std::string message = CleanTorchMessage(text);
  if (message.empty()) message = "an exception without a message";
  return Annotate(absl::Status(code, message), what);
}

absl::Status MakeStatusByText(absl::StatusCode other, absl::string_view text,
                              absl::string_view what) {
  return MakeStatus(CodeOfText(text, other), text, what);
}

absl::Status MakeOutOfMemory(absl::string_view text, absl::string_view what) {
  const std::string note = NoteOnOutOfMemory();
  std::string message = CleanTorchMessage(text);
  if (!note.empty()) absl::StrAppend(&message, "; ", note);
  return MakeStatus(absl::StatusCode::kResourceExhausted, message, what);
}

// A std::thread's that could not be started, above all.
absl::Status MakeSystemError(const std::system_error& error,
                             absl::string_view what) {
  if (error.code() != std::errc::resource_unavailable_try_again) {
    return MakeStatusByText(absl::StatusCode::kInternal, error.what(), what);
  }
  const absl::Status status = StartError(EAGAIN, "start a thread");
  return MakeStatus(absl::StatusCode::kResourceExhausted, status.message(),
                    what);
}

// Cuts `text` where `mark` begins.
void CutAt(absl::string_view mark, absl::string_view* text) {
  const size_t position = text->find(mark);
  if (position != absl::string_view::npos) *text = text->substr(0, position);
}

// "[enforce fail at alloc_cpu.cpp:121] err == 0. " and
// "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] ".
std::string WithoutSourceLocations(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t open = text.find('[');
    const size_t close = text.find(']', open);
    if (close == absl::string_view::npos) break;
    const absl::string_view inside = text.substr(open, close - open);
    absl::StrAppend(&out, text.substr(0, open));
    text.remove_prefix(close + 1);
    if (!ContainsAny(inside, {".cc:", ".cpp:", ".h:", ".hpp:"})) {
      absl::StrAppend(&out, inside, "]");
    } else {
      text = absl::StripLeadingAsciiWhitespace(text);
    }
  }
  absl::StrAppend(&out, text);
  return out;
}

}  // namespace

std::string CleanTorchMessage(absl::string_view what) {
  for (absl::string_view mark :
       {"Exception raised from ", "\nframe #",
        "C++ CapturedTraceback:", "(Could this error message be improved?",
        // Gloo's advice, after a broken connection's error.
        ". This is typically caused by a remote worker"}) {
    CutAt(mark, &what);
  }
  what = absl::StripTrailingAsciiWhitespace(what);
  // What is left of "message (Exception raised from ...": c10 opens a
  // parenthesis before it in some versions.
  if (absl::EndsWith(what, " (")) what.remove_suffix(2);
  return std::string(absl::StripAsciiWhitespace(WithoutSourceLocations(what)));
}

absl::Status Annotate(const absl::Status& status, absl::string_view what) {
  if (status.ok() || what.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(what, ": ", status.message()));
}

absl::Status StatusOfCurrentException(absl::string_view what) {
  using Code = absl::StatusCode;
  try {
    throw;
  } catch (const c10::OutOfMemoryError& e) {
    return MakeOutOfMemory(e.what_without_backtrace(), what);
  } catch (const c10::IndexError& e) {
    return MakeStatus(Code::kOutOfRange, e.what_without_backtrace(), what);
  } catch (const c10::NotImplementedError& e) {
    return MakeStatus(Code::kUnimplemented, e.what_without_backtrace(), what);
  } catch (const c10::DistNetworkError& e) {
    return MakeStatusByText(Code::kUnavailable, e.what_without_backtrace(),
                            what);
  } catch (const c10::DistStoreError& e) {
    return MakeStatusByText(Code::kUnavailable, e.what_without_backtrace(),
                            what);
  } catch (const c10::DistError& e) {
    return MakeStatusByText(Code::kInternal, e.what_without_backtrace(), what);
  } catch (const c10::AcceleratorError& e) {
    return MakeStatusByText(Code::kInternal, e.what_without_backtrace(), what);
  } catch (const c10::Error& e) {
    return MakeStatusByText(Code::kInvalidArgument, e.what_without_backtrace(),
                            what);
  } catch (const std::bad_alloc&) {
    return MakeStatus(Code::kResourceExhausted, "out of memory", what);
  } catch (const std::out_of_range& e) {
    return MakeStatus(Code::kOutOfRange, e.what(), what);
  } catch (const std::invalid_argument& e) {
    return MakeStatus(Code::kInvalidArgument, e.what(), what);
  } catch (const std::system_error& e) {
    return MakeSystemError(e, what);
  } catch (const std::exception& e) {
    return MakeStatusByText(Code::kInternal, e.what(), what);
  } catch (...) {
    return MakeStatus(Code::kInternal, "an exception of unknown type", what);
  }
}

namespace torch_status_internal {

absl::Status Catch(absl::FunctionRef<void()> fn, absl::string_view what) {
  try {
    fn();
  } catch (...) {
    return StatusOfCurrentException(what);
  }
  return absl::OkStatus();
}

}  // namespace torch_status_internal

}  // namespace tandem
