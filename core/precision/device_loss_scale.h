// Loss scale on devices: the scale of a loss and the verdict on its gradients
// (torch.amp.GradScaler's _scale and found_inf), as numbers that lie on the
// devices, so that the host need not wait to know whether a step is skipped.

#ifndef TANDEM_CORE_PRECISION_DEVICE_LOSS_SCALE_H_
#define TANDEM_CORE_PRECISION_DEVICE_LOSS_SCALE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/precision/loss_scale.h"

namespace tandem {

// A scale that each of a rank's devices has, and what the host knows of it. By
// the step: Begin; backward from losses times scale(d); gradients times
// inverse(d), which leave in found_inf(d) whether one was not finite; Agree;
// then either optimizers take found_inf(d), and Update, whose verdict the host
// reads when it likes and gives to Learn; or the host reads the verdict at
// once, and updates known() itself.
//
// Tensors are numbers (no dimensions) of float32; verdicts are 0 or 1. Work
// goes to the calling thread's current streams. Throws c10::Error. Not
// thread-safe, but that devices may be served by a thread each between Begin
// and Agree.
class DeviceLossScale {
 public:
  DeviceLossScale(const LossScale& scale,
                  const std::vector<c10::Device>& devices);

  // As of the last verdict that Learn was told of. What is changed here (a
  // state loaded) holds from the next Begin on, if no verdict is unread.
  LossScale& known() { return known_; }

  // No gradient was found to be infinite or NaN yet.
  void Begin();
  const at::Tensor& scale(size_t device) const { return on_[device].scale; }
  const at::Tensor& inverse(size_t device) const { return on_[device].inverse; }
  const at::Tensor& found_inf(size_t device) const { return on_[device].found; }

  // Makes one verdict of all devices': where one has found something, all have.
  // `sum_over_ranks` sums a tensor of one element in place; errors are its.
  absl::Status Agree(
      absl::FunctionRef<absl::Status(const at::Tensor& found)> sum_over_ranks);
  // LossScale::Update, on the devices. Returns the verdict, a tensor on one of
  // them that is not written again.
  at::Tensor Update(size_t reads_from);
  // Of Update's verdicts the next, read: LossScale::Update's.
  absl::Status Learn(bool found_inf);

 private:
  struct OnDevice {
    at::Tensor scale, inverse, found;
    at::Tensor tracker;  // int32
  };

  // Tells devices of what was changed in known().
  void Tell();

  LossScale known_;
  std::vector<OnDevice> on_;
  int unread_ = 0;  // verdicts
  // What devices have, when none is unread.
  double scale_ = 0;
  int64_t tracker_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_PRECISION_DEVICE_LOSS_SCALE_H_
