#include "parallel/optim/captured_step.h"

#include <ATen/ops/empty.h>
#include <glog/logging.h>

#include "core/cuda/step_kernels.h"

namespace tandem {
namespace {

thread_local CapturedStep* current = nullptr;

}  // namespace

CapturedStep::Scope::Scope(CapturedStep* step) {
  CHECK(current == nullptr) << "a captured step within another";
  current = step;
}

CapturedStep::Scope::~Scope() { current = nullptr; }

CapturedStep* CapturedStep::Current() { return current; }

StepNumbers StepNumbers::On(c10::Device device) {
  const at::TensorOptions on(device);
  return {at::empty({}, on.dtype(device.is_cuda() ? at::kFloat : at::kDouble)),
          at::empty({}, on.dtype(at::kFloat)),
          at::empty({kStepNumbers}, on.dtype(at::kFloat))};
}

}  // namespace tandem
