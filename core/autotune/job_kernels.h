// Autotuning of a job: kernels that are measured, the same on all its ranks.

#ifndef TANDEM_CORE_AUTOTUNE_JOB_KERNELS_H_
#define TANDEM_CORE_AUTOTUNE_JOB_KERNELS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/autotune/kernel_choices.h"
#include "core/comm/communicator.h"

namespace tandem {

// While one lives, this process measures (KernelChoices): what rank 0's cache
// file holds is every rank's choice, and of what it lacks the first rank that
// needs it decides for all, through the job's store. On one host the ranks of
// all jobs share a file.
class JobKernels {
 public:
  // Collective. `cache` is this host's file, ChoiceFile::DefaultPath as a rule.
  // Where rank 0 has none (or it is empty: FailedPrecondition), its error is
  // every rank's. Another rank without one says so, and has the others'
  // kernels. `choices` must outlive this.
  static absl::StatusOr<std::unique_ptr<JobKernels>> Measure(
      const std::string& cache, Communicator& world,
      KernelChoices& choices = KernelChoices::OfProcess());

  ~JobKernels();
  JobKernels(const JobKernels&) = delete;
  JobKernels& operator=(const JobKernels&) = delete;

 private:
  explicit JobKernels(KernelChoices& choices) : choices_(choices) {}

  KernelChoices& choices_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_AUTOTUNE_JOB_KERNELS_H_
