// Autocast: which dtype products are computed in, as a scope (torch.autocast).

#ifndef TANDEM_CORE_PRECISION_AUTOCAST_H_
#define TANDEM_CORE_PRECISION_AUTOCAST_H_

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace tandem {

// What autocast does on one type of device.
struct AutocastState {
  c10::DeviceType type;
  bool is_enabled;
  c10::ScalarType dtype;  // kept while it is off, too
};

// The calling thread's state, by any scope, LibTorch's own included.
AutocastState CurrentAutocast(c10::DeviceType type);
void SetAutocast(const AutocastState& state);

// torch.autocast as a scope: on the calling thread, LibTorch's operators on
// such devices take and give `dtype` where PyTorch's list says so (products,
// convolutions, attention), and so do the functions of models/functions.
// Without a dtype, all stays as it is. Scopes nest. What backward does follows
// from what forward has kept: it needs no scope.
//
// LibTorch's copies of parameters are dropped when the outermost scope ends, as
// PyTorch's are; those of low_precision_copy.h stay.
class AutocastGuard {
 public:
  AutocastGuard(c10::DeviceType type, std::optional<c10::ScalarType> dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  const AutocastState outer_;
};

// In which dtype a product of such tensors is to be computed now: autocast's,
// for floating-point tensors that are no doubles; else theirs.
c10::ScalarType AutocastDtype(c10::DeviceType type, c10::ScalarType theirs);

}  // namespace tandem

#endif  // TANDEM_CORE_PRECISION_AUTOCAST_H_
