// Dropout and a residual connection in one pass, whose mask is a function of
// the place and is never in memory: backward draws it again.

#ifndef TANDEM_CORE_FUSED_DROPOUT_ADD_H_
#define TANDEM_CORE_FUSED_DROPOUT_ADD_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>

#include "core/cuda/dropout_elements.h"

namespace tandem {

// Dropout check: what tandem::dropout_add takes, on whatever device.

inline bool HasResidual(const std::optional<at::Tensor>& residual) {
  return residual.has_value() && residual->defined();
}

// Throws c10::Error on what does not fit.
inline void CheckDropout(const at::Tensor& x,
                         const std::optional<at::Tensor>& residual, double p,
                         const SamplePart& part) {
  const bool adds = HasResidual(residual);
  TORCH_CHECK(x.dim() > 0 && p >= 0 && p <= 1 &&
                  (!adds || (residual->sizes() == x.sizes() &&
                             residual->scalar_type() == x.scalar_type() &&
                             residual->device() == x.device())),
              "dropout_add of ", x.scalar_type(), x.sizes(),
              " with probability ", p, adds ? " and another residual" : "",
              ": expected [samples, ...], and a residual like it");
  TORCH_CHECK(part.begin >= 0 && part.run >= 0 && part.stride >= 0 &&
                  (part.run == 0 || x.numel() == 0 ||
                   x.numel() % (x.size(0) * part.run) == 0),
              "dropout_add of ", x.sizes(), ", of samples the elements from ",
              part.begin, " on in runs of ", part.run, " at a distance of ",
              part.stride, ": expected whole runs, and no negative numbers");
}

// Which numbers decide on what is dropped: element e of a sample takes word e %
// 4 of block (sample, e / 4) of Philox4x32-10 under `key`
// (core/random/random.h), and is dropped if that is less than p 2^32. Row r is
// of sample first_sample + r.
struct DropoutDraws {
  uint64_t key = 0;
  int64_t first_sample = 0;
  double p = 0;  // in [0, 1]
  // Which elements of its sample a row holds: all, or some of them, which drop
  // what they would drop as a part of all.
  SamplePart part = {};
};

// x, of which elements are dropped and the others multiplied by 1 / (1 - p),
// plus `residual` unless that is undefined. x [samples, ...], float or bf16;
// residual of the same shape and dtype. Computed in float; any number of
// threads and any instruction set give the same bits.
//
// Linear in x: the gradient of x is DropoutAdd(dy, {}, draws), that of the
// residual dy.
//
// An operator of LibTorch (tandem::dropout_add), for the CPU, simulated devices
// and, under --config=cuda, CUDA (fp16 too). Not differentiable: for autograd
// functions to call. Throws c10::Error on shapes and dtypes that do not fit.
at::Tensor DropoutAdd(const at::Tensor& x, const at::Tensor& residual,
                      const DropoutDraws& draws);

// Is there a kernel for x's device and dtype?
bool HasDropoutAdd(const at::Tensor& x);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_DROPOUT_ADD_H_
