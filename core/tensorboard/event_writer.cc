#include "core/tensorboard/event_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <protozero/pbf_builder.hpp>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"
#include "core/tensorboard/record.h"

namespace tandem {
namespace {

// Fields of event.proto (tensorboard/compat/proto).
enum class EventField : protozero::pbf_tag_type {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7,
};
enum class SessionField : protozero::pbf_tag_type { kStatus = 1 };

constexpr int32_t kSessionStart = 1;  // SessionLog.START

constexpr size_t kMostWaiting = size_t{16} << 20;
constexpr int kMostNames = 1000;

using EventBuilder = protozero::pbf_builder<EventField>;

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, HOST_NAME_MAX) != 0) return "localhost";
  return name;
}

// A name that no other writer has, in this process or, most likely, in others.
std::string NextName(absl::Time now) {
  static std::atomic<int64_t> count{0};
  return absl::StrFormat("events.out.tfevents.%010d.%s.%d.%d",
                         absl::ToUnixSeconds(now), HostName(), getpid(),
                         count++);
}

absl::Status FileError(int error, const std::string& path,
                       absl::string_view what) {
  return SystemError(error, absl::StrCat(path, ": cannot ", what));
}

}  // namespace

absl::Status PrepareEventFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FileError(error.value(), folder, "make this folder");
  if (!std::filesystem::is_directory(folder, error)) {
    return FileError(ENOTDIR, folder, "make files there");
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return FileError(errno, folder, "make files there");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<EventWriter>> EventWriter::Create(
    const std::string& folder, const EventWriterOptions& options) {
  if (options.flush_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an event file's flush_interval is ",
        absl::FormatDuration(options.flush_interval), ": give more than 0"));
  }
  TANDEM_RETURN_IF_ERROR(PrepareEventFolder(folder));
  for (int i = 0; i < kMostNames; ++i) {
    const std::string path =
        absl::StrCat(folder, "/", NextName(options.clock()));
    const int descriptor =
        open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == EEXIST) continue;
    if (descriptor < 0) return FileError(errno, path, "make this file");
    auto writer =
        absl::WrapUnique(new EventWriter(path, OwnedFd(descriptor), options));
    TANDEM_RETURN_IF_ERROR(writer->Start());
    return writer;
  }
  return FileError(EEXIST, folder, "find a new name for an event file");
}

EventWriter::EventWriter(std::string path, OwnedFd file,
                         const EventWriterOptions& options)
    : path_(std::move(path)), options_(options), file_(std::move(file)) {}

absl::Status EventWriter::Start() {
  std::string version;
  EventBuilder(version).add_string(EventField::kFileVersion, "brain.Event:2");
  TANDEM_RETURN_IF_ERROR(AddEvent(0, version));
  // Readers that follow the folder see a file that is one. On a full disk it
  // waits, too.
  const absl::Status flushed = Flush();
  {
    const absl::MutexLock lock(&mutex_);
    failure_ = flushed;
  }
  try {
    flusher_ = std::thread([this] { FlushFromTimeToTime(); });
  } catch (const std::system_error& error) {
    return StartError(error.code().value(),
                      absl::StrCat(path_, ": the thread that flushes it"));
  }
  return absl::OkStatus();
}

EventWriter::~EventWriter() {
  {
    const absl::MutexLock lock(&mutex_);
    has_ended_ = true;
  }
  if (flusher_.joinable()) flusher_.join();
  const absl::MutexLock lock(&mutex_);
  FlushWaiting().IgnoreError();
}

absl::Status EventWriter::AddScalar(absl::string_view tag, double value,
                                    int64_t step) {
  Summary summary;
  TANDEM_RETURN_IF_ERROR(summary.AddScalar(tag, value));
  return AddSummary(summary, step);
}

absl::Status EventWriter::AddText(absl::string_view tag,
                                  absl::string_view markdown, int64_t step) {
  Summary summary;
  TANDEM_RETURN_IF_ERROR(summary.AddText(tag, markdown));
  return AddSummary(summary, step);
}

absl::Status EventWriter::AddHistogram(absl::string_view tag,
                                       const at::Tensor& values, int64_t step) {
  Summary summary;
  TANDEM_RETURN_IF_ERROR(summary.AddHistogram(tag, values));
  return AddSummary(summary, step);
}

absl::Status EventWriter::AddImage(absl::string_view tag, absl::string_view png,
                                   int64_t height, int64_t width,
                                   int64_t step) {
  Summary summary;
  TANDEM_RETURN_IF_ERROR(summary.AddImage(tag, png, height, width));
  return AddSummary(summary, step);
}

absl::Status EventWriter::AddSummary(const Summary& summary, int64_t step) {
  if (summary.empty()) return absl::OkStatus();
  std::string fields;
  EventBuilder(fields).add_message(EventField::kSummary, summary.message());
  return AddEvent(step, fields);
}

absl::Status EventWriter::AddSessionStart(int64_t step) {
  std::string session;
  protozero::pbf_builder<SessionField>(session).add_enum(SessionField::kStatus,
                                                         kSessionStart);
  std::string fields;
  EventBuilder(fields).add_message(EventField::kSessionLog, session);
  return AddEvent(step, fields);
}

absl::Status EventWriter::AddEvent(int64_t step, absl::string_view fields) {
  const absl::Duration now = options_.clock() - absl::UnixEpoch();
  std::string event;
  EventBuilder proto(event);
  proto.add_double(EventField::kWallTime, absl::ToDoubleSeconds(now));
  if (step != 0) proto.add_int64(EventField::kStep, step);
  event.append(fields.data(), fields.size());
  const absl::MutexLock lock(&mutex_);
  AppendRecord(event, &waiting_);
  if (waiting_.size() >= options_.flush_bytes) return FlushWaiting();
  return std::exchange(failure_, absl::OkStatus());
}

absl::Status EventWriter::Flush() {
  const absl::MutexLock lock(&mutex_);
  return FlushWaiting();
}

// Writes behind the last whole record, over what an attempt left there that
// failed.
absl::Status EventWriter::FlushWaiting() {
  failure_ = absl::OkStatus();
  size_t done = 0;
  int failure = EIO;
  while (done < waiting_.size()) {
    const ssize_t wrote =
        pwrite(file_.get(), waiting_.data() + done, waiting_.size() - done,
               static_cast<off_t>(size_ + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) failure = errno;
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  if (done == waiting_.size()) {
    size_ += done;
    waiting_.clear();
    return absl::OkStatus();
  }
  const absl::Status error = FileError(failure, path_, "write");
  // A reader would wait at half a record. Where it cannot be taken back, what
  // is written next covers it.
  static_cast<void>(ftruncate(file_.get(), static_cast<off_t>(size_)) == 0);
  if (waiting_.size() > kMostWaiting) waiting_.clear();
  return error;
}

void EventWriter::FlushFromTimeToTime() {
  const absl::MutexLock lock(&mutex_);
  const absl::Condition has_ended(&has_ended_);
  while (!mutex_.AwaitWithTimeout(has_ended, options_.flush_interval)) {
    if (waiting_.empty()) continue;
    failure_ = FlushWaiting();
  }
}

}  // namespace tandem
