// TensorBoard event files: scalars, texts, histograms and images of a training,
// written without Python.
//
//   TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<EventWriter> events,
//                           EventWriter::Create("runs/first"));
//   TANDEM_RETURN_IF_ERROR(events->AddScalar("train/loss", loss, step));
//
// `tensorboard --logdir=runs` then shows them. PyTorch's SummaryWriter
// (torch.utils.tensorboard) for C++.

#ifndef TANDEM_CORE_TENSORBOARD_EVENT_WRITER_H_
#define TANDEM_CORE_TENSORBOARD_EVENT_WRITER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/owned_fd.h"
#include "core/tensorboard/summary.h"

namespace tandem {

struct EventWriterOptions {
  // What was added is in the file after so long at most (flush_secs), or when
  // there is so much of it: a crash of the process loses no more.
  absl::Duration flush_interval = absl::Seconds(120);
  size_t flush_bytes = size_t{1} << 16;
  // Tells the time of events, and of the file's name.
  std::function<absl::Time()> clock = absl::Now;
};

// Makes the folder, and those above it, where they are not there; errors of the
// file system, which name it, where no file can be made in it.
absl::Status PrepareEventFolder(const std::string& folder);

// One new file, events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER, in a folder
// that TensorBoard shows as a run. Several files of one folder are shown as one
// run, in the order of their names: a job that goes on writes one more. What is
// written is not synced to the disk.
//
// Tags, values and their errors are those of Summary (summary.h). A step may be
// any number; points of a tag are shown by step. Where the file cannot be
// written (a full disk), the method that tried says so, with its path and the
// system's reason, or the next one does where it was nobody's: events wait then
// for the next flush, and 16 MiB of them at most are kept. The file has whole
// events at any time, but for its end while the process writes, or was killed.
//
// Thread-safe.
class EventWriter {
 public:
  // In a folder that is prepared before. InvalidArgument for an interval that
  // is not positive; else errors of the file system, which name the path.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Create(
      const std::string& folder, const EventWriterOptions& options = {});

  // Flushes; an error is told by nobody then.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  absl::Status AddScalar(absl::string_view tag, double value, int64_t step);
  absl::Status AddText(absl::string_view tag, absl::string_view markdown,
                       int64_t step);
  absl::Status AddHistogram(absl::string_view tag, const at::Tensor& values,
                            int64_t step);
  absl::Status AddImage(absl::string_view tag, absl::string_view png,
                        int64_t height, int64_t width, int64_t step);
  // Several values of one step, as one event. Nothing for an empty one.
  absl::Status AddSummary(const Summary& summary, int64_t step);

  // Begins anew at `step`: of what the folder's files have before, TensorBoard
  // drops the points of this step and of later ones (purge_step). Its pages do
  // not for the first start in a folder: so whoever may go on later says 0 in
  // the beginning.
  absl::Status AddSessionStart(int64_t step);

  // What was added is in the file, for other processes to read.
  absl::Status Flush();

  const std::string& path() const { return path_; }

 private:
  EventWriter(std::string path, OwnedFd file,
              const EventWriterOptions& options);

  absl::Status Start();
  // Adds an event with these fields, serialized, beside its time and step.
  absl::Status AddEvent(int64_t step, absl::string_view fields);
  absl::Status FlushWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushFromTimeToTime();

  const std::string path_;
  const EventWriterOptions options_;
  const OwnedFd file_;
  absl::Mutex mutex_;
  std::string waiting_ ABSL_GUARDED_BY(mutex_);  // records
  uint64_t size_ ABSL_GUARDED_BY(mutex_) = 0;    // of the file's whole records
  // The error of a flush by the thread, until somebody is told.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread flusher_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_TENSORBOARD_EVENT_WRITER_H_
