#include "tools/trainer/job/kernels.h"

#include <glog/logging.h>

#include <string>

#include "absl/status/statusor.h"
#include "core/autotune/choice_file.h"
#include "core/base/environment.h"

namespace tandem {

std::unique_ptr<JobKernels> KernelsOf(const TrainOptions& options,
                                      Communicator& world) {
  if (!MeasuresKernels(options)) return nullptr;
  const std::string cache =
      options.kernel_cache.empty()
          ? ChoiceFile::DefaultPath(Environment::OfProcess())
          : options.kernel_cache;
  absl::StatusOr<std::unique_ptr<JobKernels>> kernels =
      JobKernels::Measure(cache, world);
  if (kernels.ok()) return *std::move(kernels);
  // Without a home (a service's, a sandbox's) nothing was to be expected.
  if (cache.empty() && options.kernels == "auto") return nullptr;
  LOG(WARNING) << "kernels are chosen by rule, not by measurement: "
               << kernels.status().message() << " (--kernel_cache)";
  return nullptr;
}

}  // namespace tandem
