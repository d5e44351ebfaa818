// Determinism of GPU kernels, and what it is traded for: cuDNN's benchmark and
// TF32 (torch.use_deterministic_algorithms and torch.backends of PyTorch).

#ifndef TANDEM_CORE_DEVICE_DETERMINISM_H_
#define TANDEM_CORE_DEVICE_DETERMINISM_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct GpuNumerics {
  // The same operands give the same bits, run for run: deterministic
  // algorithms everywhere, in cuDNN too, a fixed workspace of cuBLAS, and new
  // memory filled. An operator without such an algorithm is an error.
  bool deterministic = false;
  // cuDNN times its algorithms for each new shape and keeps the fastest.
  bool cudnn_benchmark = false;
  // Products and convolutions of fp32 round their factors to TF32, 10 bits
  // behind the comma. Off, unlike PyTorch, for convolutions as well.
  bool allow_tf32 = false;
};

// Settings of the process, LibTorch's at::globalContext() and the environment's
// CUBLAS_WORKSPACE_CONFIG: for programs, before the first use of CUDA, while no
// other thread reads the environment. InvalidArgument, with nothing set, for
// `deterministic` together with one of the others, or with a
// CUBLAS_WORKSPACE_CONFIG of the user's that is not deterministic.
absl::Status SetGpuNumerics(const GpuNumerics& numerics);

// "index_add_cuda_" where `message` is LibTorch's refusal of an operator that
// has no deterministic algorithm; empty for others.
std::string NondeterministicOperator(absl::string_view message);

// `status`, or, where it is such a refusal, what to do about it as well. For
// whoever hands a step's error on.
absl::Status ExplainNondeterminism(const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_DETERMINISM_H_
