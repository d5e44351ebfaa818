#include "core/cuda/step_kernels_of.h"

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#ifdef TANDEM_CUDA
#include "core/cuda/gpu_step_kernels.h"
#endif

namespace tandem {
namespace {

struct Registered {
  Registered() {
#ifdef TANDEM_CUDA
    kernels[c10::DeviceType::CUDA] = &GpuStepKernels();
#endif
  }

  absl::Mutex mutex;
  std::map<c10::DeviceType, const StepKernels*> kernels ABSL_GUARDED_BY(mutex);
};

Registered& AllRegistered() {
  static auto* const registered = new Registered;
  return *registered;
}

}  // namespace

const StepKernels* StepKernelsOf(c10::DeviceType type) {
  absl::MutexLock lock(&AllRegistered().mutex);
  const auto found = AllRegistered().kernels.find(type);
  return found == AllRegistered().kernels.end() ? nullptr : found->second;
}

void RegisterStepKernels(c10::DeviceType type, const StepKernels* kernels) {
  absl::MutexLock lock(&AllRegistered().mutex);
  AllRegistered().kernels[type] = kernels;
}

}  // namespace tandem
