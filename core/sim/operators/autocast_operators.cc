// Which operators autocast casts on simulated devices: those that it does on
// CUDA.

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "core/sim/operators/libraries.h"
#include "core/sim/operators/register_operators.h"

namespace tandem {
namespace sim {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::AutocastPrivateUse1;

#define TANDEM_LOWER_PRECISION(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TANDEM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TANDEM_SET_DTYPE(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TANDEM_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

void RegisterCasts(torch::Library& m) {
  using namespace at;  // LibTorch's lists name its types without one
  AT_FORALL_LOWER_PRECISION_FP(TANDEM_LOWER_PRECISION)
  AT_FORALL_FP32(TANDEM_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TANDEM_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
      KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TANDEM_PROMOTE)
}

}  // namespace

void RegisterAutocast() {
  NewLibrary("_", kKey).fallback(torch::CppFunction::makeFallthrough());
  RegisterCasts(NewLibrary("aten", kKey));
}

}  // namespace sim
}  // namespace tandem
