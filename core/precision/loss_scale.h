// Loss scale: what a loss is multiplied by, so that its gradients are neither
// too small nor too large for fp16, and how that follows from the gradients.

#ifndef TANDEM_CORE_PRECISION_LOSS_SCALE_H_
#define TANDEM_CORE_PRECISION_LOSS_SCALE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Names and defaults of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     // after each growth_interval good steps
  double backoff_factor = 0.5;  // after a step that was skipped
  int64_t growth_interval = 2000;
  bool enabled = true;  // off: the scale is 1, and stays
  // The scale is init_scale, and stays, but steps are skipped all the same.
  bool constant = false;
};

// A loss of 1 that is scaled by less is no normal number of fp16 any more, as
// would be any gradient below it: such a scale helps nobody.
constexpr double kLeastLossScale = 1.0 / 16384;

// InvalidArgument, naming the option and its value, unless init_scale is finite
// as a float and kLeastLossScale at least, growth_factor > 1, 0 <
// backoff_factor < 1 and growth_interval >= 1.
absl::Status CheckGradScalerOptions(const GradScalerOptions& options);

// The arithmetic of torch.amp.GradScaler (_amp_update_scale_; dynamic loss
// scaling: Micikevicius et al., 1710.03740): a float that is multiplied by
// backoff_factor after each step whose gradients were not finite, and by
// growth_factor after growth_interval steps in a row whose gradients were,
// unless it would overflow. Ranks that are told the same have the same scale,
// to the bit. Not thread-safe.
class LossScale {
 public:
  // InvalidArgument: CheckGradScalerOptions's.
  static absl::StatusOr<LossScale> Create(const GradScalerOptions& options);

  const GradScalerOptions& options() const { return options_; }
  bool is_enabled() const { return options_.enabled; }
  double scale() const { return is_enabled() ? scale_ : 1; }
  // What gradients are multiplied by afterwards, as PyTorch rounds it.
  float inverse() const { return static_cast<float>(1 / scale()); }
  // Good steps since the scale changed.
  int64_t growth_tracker() const { return growth_tracker_; }

  // A step is over; `found_inf`: one of its gradients was infinite or NaN, so
  // that it was skipped. OutOfRange where the scale would fall below
  // kLeastLossScale (PyTorch goes on, and skips all steps).
  absl::Status Update(bool found_inf);

  // Updates that this object was told of: skipped ones, and whether the last
  // one was.
  int64_t skipped_steps() const { return skipped_steps_; }
  bool last_was_skipped() const { return skipped_in_a_row_ > 0; }

  // state_dict(), by PyTorch's keys: "scale", "growth_factor",
  // "backoff_factor", "growth_interval", "_growth_tracker"; empty when off
  // or constant.
  std::map<std::string, double> State() const;
  // load_state_dict(): all of them. InvalidArgument, and nothing changed, for a
  // key that is missing or unknown, and for a value that is out of its range.
  // Off or constant, it takes none.
  absl::Status LoadState(const std::map<std::string, double>& state);

 private:
  explicit LossScale(const GradScalerOptions& options)
      : options_(options), scale_(static_cast<float>(options.init_scale)) {}

  absl::Status BackOff();
  void Grow();

  GradScalerOptions options_;
  float scale_;
  int64_t growth_tracker_ = 0;
  int64_t skipped_steps_ = 0;
  int64_t skipped_in_a_row_ = 0;
};

// Loss scale on devices: the scale of a loss and the verdict on its gradients
// (torch.amp.GradScaler's _scale and found_inf), as numbers that lie on the
// devices, so that the host need not wait to know whether a step is skipped.

// A scale that each of a rank's devices has, and what the host knows of it. By
// the step: Begin; backward from losses times scale(d); gradients times
// inverse(d), which leave in found_inf(d) whether one was not finite; Agree;
// then either optimizers take found_inf(d), and Update, whose verdict the host
// reads when it likes and gives to NoteVerdict; or the host reads the verdict
// at once, and updates known() itself.
//
// Tensors are numbers (no dimensions) of float32; verdicts are 0 or 1. Work
// goes to the calling thread's current streams. Throws c10::Error. Not
// thread-safe, but that devices may be served by a thread each between Begin
// and Agree.
class DeviceLossScale {
 public:
  DeviceLossScale(const LossScale& scale,
                  const std::vector<c10::Device>& devices);

  // The scale as of the last verdict that was noted. What is changed here (a
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
  // Notes the next of Update's verdicts, once it is read: LossScale::Update's.
  absl::Status NoteVerdict(bool found_inf);

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

#endif  // TANDEM_CORE_PRECISION_LOSS_SCALE_H_
