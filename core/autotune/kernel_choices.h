// Autotuning: which of several kernels for one computation is the fastest here,
// found by timing them once (as torch.backends.cudnn.benchmark does).

#ifndef TANDEM_CORE_AUTOTUNE_KERNEL_CHOICES_H_
#define TANDEM_CORE_AUTOTUNE_KERNEL_CHOICES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/autotune/choice_file.h"

namespace tandem {

// One way to compute something. Alternatives compute the same but for rounding.
struct Kernel {
  std::string name;           // "mkl"; without tabs and line breaks
  std::function<void()> run;  // once; may be run any number of times
};

// What a process has settled on. Unless it is told to measure, each
// computation has the kernel of its fixed rule.
//
// Thread-safe.
class KernelChoices {
 public:
  // The choices of this process.
  static KernelChoices& OfProcess();

  struct Measuring {
    // What was decided is kept here: the next run has the same kernels, and so
    // the same bits. Where it is null, or fails, this rank measures only what
    // the job's other ranks may keep (`decide`).
    std::unique_ptr<ChoiceFile> file;
    // The choices of the job's first rank, which go before the file's.
    Choices given;
    // The job's answer to a question that this rank may be the first to ask,
    // and answers so itself. None: its own.
    std::function<std::string(const std::string& key, const std::string& mine)>
        decide;
    // Seconds that one run takes, at best. None: a clock's.
    std::function<double(const Kernel&)> time;
  };

  // From here on, until it is called again or Fix is.
  void Measure(Measuring measuring);
  void Fix();

  bool measures() const { return measures_.load(); }

  // Which of `kernels` to use for `key`, a line of text that says what is
  // computed: the one that is the fastest by more than the noise, else
  // `fixed`. What the job decides stands before either. Takes as long as timing
  // the kernels the first time; callers keep the answer for as long as
  // generation() stays the same.
  size_t Pick(const std::string& key, absl::Span<const Kernel> kernels,
              size_t fixed);

  uint64_t generation() const { return generation_.load(); }

 private:
  absl::Mutex mutex_;
  std::shared_ptr<Measuring> measuring_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> measures_{false};
  std::atomic<uint64_t> generation_{0};
};

// Another kernel than that of the fixed rule must take less than this part of
// its time.
constexpr double kClearlyFaster = 0.97;

}  // namespace tandem

#endif  // TANDEM_CORE_AUTOTUNE_KERNEL_CHOICES_H_
