#include "core/cuda/optimizer_kernels.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
// Enough for every processor of the largest GPUs, several times over; more
// would only begin and end.
constexpr int kMostBlocks = kFactorScratch;
constexpr int kVector = 4;

int BlocksFor(int64_t length) {
  const int64_t each = int64_t{kThreads} * kVector;
  const int64_t blocks = (length + each - 1) / each;
  return static_cast<int>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

__device__ int64_t FirstOfThread() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ int64_t ThreadsOfGrid() { return int64_t{gridDim.x} * blockDim.x; }

// The sum over a block's threads, in an order that is always the same; whole on
// thread 0.
__device__ double SumOfBlock(double mine) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

__device__ double SquareOf(float number) {
  return static_cast<double>(number) * number;
}

__global__ void __launch_bounds__(kThreads)
    SumSquaresOfBlock(const float* grads, int64_t length, double* sums) {
  double mine = 0;
  const int64_t vectors = length / kVector;
  const auto* as_vectors = reinterpret_cast<const float4*>(grads);
  for (int64_t i = FirstOfThread(); i < vectors; i += ThreadsOfGrid()) {
    const float4 four = as_vectors[i];
    mine += SquareOf(four.x) + SquareOf(four.y) + SquareOf(four.z) +
            SquareOf(four.w);
  }
  const int64_t rest = vectors * kVector + FirstOfThread();
  if (rest < length) mine += SquareOf(grads[rest]);
  const double sum = SumOfBlock(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    FactorOfSums(const double* sums, int count, FactorOptions options,
                 GradientFactor* factor) {
  double mine = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) mine += sums[i];
  const double sum = SumOfBlock(mine);
  if (threadIdx.x == 0) *factor = FactorOf(sum, options);
}

// A state that there is not is neither read nor written.
template <int states, typename Step>
__device__ void StepOne(const StepBuffers& buffers, int64_t i, float factor,
                        const Step& step) {
  float first = states > 0 ? buffers.first[i] : 0;
  float second = states > 1 ? buffers.second[i] : 0;
  float value = buffers.values[i];
  step(factor * buffers.grads[i], value, first, second);
  buffers.values[i] = value;
  if (states > 0) buffers.first[i] = first;
  if (states > 1) buffers.second[i] = second;
}

// Four neighbours: each buffer is read and written 16 bytes at a time.
template <int states, typename Step>
__device__ void StepFour(const StepBuffers& buffers, int64_t i, float factor,
                         const Step& step) {
  auto* values = reinterpret_cast<float4*>(buffers.values) + i;
  auto* firsts = reinterpret_cast<float4*>(buffers.first) + i;
  auto* seconds = reinterpret_cast<float4*>(buffers.second) + i;
  const float4 grad = reinterpret_cast<const float4*>(buffers.grads)[i];
  float4 value = *values;
  float4 first = {}, second = {};
  if (states > 0) first = *firsts;
  if (states > 1) second = *seconds;
  step(factor * grad.x, value.x, first.x, second.x);
  step(factor * grad.y, value.y, first.y, second.y);
  step(factor * grad.z, value.z, first.z, second.z);
  step(factor * grad.w, value.w, first.w, second.w);
  *values = value;
  if (states > 0) *firsts = first;
  if (states > 1) *seconds = second;
}

template <int states, typename Step>
__global__ void __launch_bounds__(kThreads)
    StepAll(StepBuffers buffers, Step step, const GradientFactor* found) {
  if (found != nullptr && found->skip != 0) return;
  const float factor = found == nullptr ? 1 : found->factor;
  if (buffers.numbers != nullptr) step.Take(buffers.numbers);
  const int64_t vectors = buffers.length / kVector;
  for (int64_t i = FirstOfThread(); i < vectors; i += ThreadsOfGrid()) {
    StepFour<states>(buffers, i, factor, step);
  }
  const int64_t rest = vectors * kVector + FirstOfThread();
  if (rest < buffers.length) StepOne<states>(buffers, rest, factor, step);
}

template <int states, typename Step>
cudaError_t Launch(const StepBuffers& buffers, const Step& step,
                   const GradientFactor* factor, cudaStream_t stream) {
  if (buffers.length == 0) return cudaSuccess;
  StepAll<states><<<BlocksFor(buffers.length), kThreads, 0, stream>>>(
      buffers, step, factor);
  return cudaGetLastError();
}

}  // namespace

int SumSquares(const float* grads, int64_t length, double* sums,
               cudaStream_t stream) {
  const int blocks = BlocksFor(length);
  if (blocks > 0) {
    SumSquaresOfBlock<<<blocks, kThreads, 0, stream>>>(grads, length, sums);
  }
  return blocks;
}

cudaError_t FinishFactor(const double* sums, int count,
                         const FactorOptions& options, GradientFactor* factor,
                         cudaStream_t stream) {
  FactorOfSums<<<1, kThreads, 0, stream>>>(sums, count, options, factor);
  return cudaGetLastError();
}

cudaError_t FindGradientFactor(const float* grads, int64_t length,
                               const FactorOptions& options, double* scratch,
                               GradientFactor* factor, cudaStream_t stream) {
  const int sums = SumSquares(grads, length, scratch, stream);
  return FinishFactor(scratch, sums, options, factor, stream);
}

cudaError_t LaunchStep(const StepBuffers& buffers, const SgdStep& step,
                       const GradientFactor* factor, cudaStream_t stream) {
  return buffers.first == nullptr ? Launch<0>(buffers, step, factor, stream)
                                  : Launch<1>(buffers, step, factor, stream);
}

cudaError_t LaunchStep(const StepBuffers& buffers, const AdamStep& step,
                       const GradientFactor* factor, cudaStream_t stream) {
  return Launch<2>(buffers, step, factor, stream);
}

}  // namespace tandem
