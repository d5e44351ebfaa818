// GradScaler (torch.amp.GradScaler): scales the loss, so that fp16 holds its
// gradients, and skips steps in which it did not.
//
//   TANDEM_ASSIGN_OR_RETURN(GradScaler scaler, GradScaler::Create({}, &world));
//   for (...) {
//     ddp->ZeroGrad();
//     TANDEM_ASSIGN_OR_RETURN(at::Tensor output, ddp->Forward(input));
//     TANDEM_RETURN_IF_ERROR(ddp->Backward(
//         [&] { return scaler.Scale(loss(output, target)); }));
//     TANDEM_RETURN_IF_ERROR(scaler.Step(*optimizer, learning_rate).status());
//     TANDEM_RETURN_IF_ERROR(scaler.Update());
//   }
//
// Strategies have it as an option: UpdateOptions::grad_scaler.

#ifndef TANDEM_PARALLEL_OPTIM_GRAD_SCALER_H_
#define TANDEM_PARALLEL_OPTIM_GRAD_SCALER_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/precision/loss_scale.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

class Communicator;
class Optimizer;

// For any number of optimizers, each of which steps or is skipped for itself,
// as in PyTorch; one scale for all. All ranks of `group` call the same methods
// in the same order and skip the same steps: where one has a gradient that is
// not finite (of parameters that are not averaged, or under local SGD), none of
// them steps. Not thread-safe.
class GradScaler {
 public:
  // `group`, which must outlive it, are the ranks that train together; null:
  // this one alone. Errors: CheckGradScalerOptions's.
  static absl::StatusOr<GradScaler> Create(
      const GradScalerOptions& options = {}, Communicator* group = nullptr);

  // The loss, to begin backward from, times the scale: best in float, as in
  // fp16 it overflows. Several backwards add up (no_sync), before an Update.
  at::Tensor Scale(const at::Tensor& loss) const;

  // unscale_(): gradients become the loss's own, to be clipped or looked at
  // before Step. Once an Update, and before Step: FailedPrecondition else, and
  // for a gradient that no longer lies in its flat buffer. Those of
  // Communicator. Collective.
  absl::Status Unscale(const Optimizer& optimizer);

  // Unscales unless that was done, and steps unless a gradient was infinite or
  // NaN, on whatever rank; whether it did. Once an Update. Collective.
  absl::StatusOr<bool> Step(Optimizer& optimizer, double learning_rate);

  // The iteration is over: the scale follows from what Unscale has found, of
  // whatever optimizer. FailedPrecondition where nothing was unscaled;
  // LossScale::Update's.
  absl::Status Update();

  // get_scale() and the like.
  const LossScale& loss_scale() const { return scale_; }
  // state_dict() and load_state_dict(), between two iterations; the same on all
  // ranks. See LossScale.
  std::map<std::string, double> State() const { return scale_.State(); }
  absl::Status LoadState(const std::map<std::string, double>& state) {
    return scale_.LoadState(state);
  }

 private:
  struct Verdict {
    bool found_inf = false;
    bool is_used = false;  // Step was called
  };

  GradScaler(const LossScale& scale, Communicator* group)
      : scale_(scale), group_(group) {}

  absl::StatusOr<bool> MayStep(const Optimizer& optimizer);

  LossScale scale_;
  Communicator* group_;
  std::map<const Optimizer*, Verdict> verdicts_;  // in this iteration
};

// GradScaler's unscale_: multiplies all gradients by `inverse`
// (LossScale::inverse), and returns whether one of their elements was infinite
// or NaN, in one pass over memory (core/vector/multiply_and_find_inf.h).
// Parameters without a gradient take no part. Throws c10::Error.
bool UnscaleGradients(const FlatBufferList& buffers, float inverse);

// The same where the gradients lie: `inverse` and `found_inf` are numbers of
// float32 on their device, and the latter becomes 1 where one was infinite or
// NaN, else it stays. The host waits for no device.
void UnscaleGradients(const FlatBufferList& buffers, const at::Tensor& inverse,
                      const at::Tensor& found_inf);

// What of a gradient that replicas have in common one of them looks at.
enum class FiniteCheck { kNothing, kShare, kAll };

// The check alone, for gradients that are not scaled: writes 1 to `found_inf`,
// a number of float32 on their device, where one was infinite or NaN. Of a
// buffer's gradients it looks at a share (ShareSpan), where `checks` does not
// say otherwise: of all buffers' slots, one after the other.
void FindNonFinite(const FlatBufferList& buffers, const ShareOfBuffer& share_of,
                   const at::Tensor& found_inf,
                   const std::vector<FiniteCheck>& checks = {});

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_GRAD_SCALER_H_
