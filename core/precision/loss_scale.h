// Loss scale: what a loss is multiplied by, so that its gradients are neither
// too small nor too large for fp16, and how that follows from the gradients.

#ifndef TANDEM_CORE_PRECISION_LOSS_SCALE_H_
#define TANDEM_CORE_PRECISION_LOSS_SCALE_H_

#include <cstdint>
#include <map>
#include <string>

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

  // Of Updates that this object was told of: skipped ones, and whether the last
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

}  // namespace tandem

#endif  // TANDEM_CORE_PRECISION_LOSS_SCALE_H_
