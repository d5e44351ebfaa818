#include "core/cuda/gpu_step_kernels.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>

#include "core/cuda/optimizer_kernels.h"

namespace tandem {
namespace {

cudaStream_t StreamOf(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

float* ValuesOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

template <typename AnyStep>
void StepAll(const StepTensors& tensors, const AnyStep& step,
             const at::Tensor& factor) {
  const c10::cuda::CUDAGuard guard(tensors.values.device());
  const StepBuffers buffers{
      ValuesOf(tensors.values), tensors.grads.const_data_ptr<float>(),
      ValuesOf(tensors.first),  ValuesOf(tensors.second),
      tensors.values.numel(),   ValuesOf(tensors.numbers)};
  C10_CUDA_CHECK(
      LaunchStep(buffers, step,
                 static_cast<const GradientFactor*>(factor.const_data_ptr()),
                 StreamOf(tensors.values)));
}

class Kernels : public StepKernels {
 public:
  at::Tensor FindFactor(const std::vector<at::Tensor>& grads,
                        const FactorOptions& options) const override {
    const at::Tensor& some = grads.front();
    const c10::cuda::CUDAGuard guard(some.device());
    const auto most = static_cast<int64_t>(grads.size()) * kFactorScratch;
    const at::Tensor sums =
        at::empty({most}, some.options().dtype(at::kDouble));
    at::Tensor factor =
        at::empty({sizeof(GradientFactor)}, some.options().dtype(at::kByte));
    auto* const all = sums.mutable_data_ptr<double>();
    int count = 0;
    for (const at::Tensor& each : grads) {
      count += SumSquares(each.const_data_ptr<float>(), each.numel(),
                          all + count, StreamOf(some));
    }
    C10_CUDA_CHECK(
        FinishFactor(all, count, options,
                     static_cast<GradientFactor*>(factor.mutable_data_ptr()),
                     StreamOf(some)));
    return factor;
  }

  void Step(const StepTensors& tensors, const SgdStep& step,
            const at::Tensor& factor) const override {
    StepAll(tensors, step, factor);
  }
  void Step(const StepTensors& tensors, const AdamStep& step,
            const at::Tensor& factor) const override {
    StepAll(tensors, step, factor);
  }
};

}  // namespace

const StepKernels& GpuStepKernels() {
  static const auto* const kernels = new Kernels;
  return *kernels;
}

}  // namespace tandem
