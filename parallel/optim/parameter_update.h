// Parameter update: what becomes of complete gradients, clipping and the
// optimizers' step.

#ifndef TANDEM_PARALLEL_OPTIM_PARAMETER_UPDATE_H_
#define TANDEM_PARALLEL_OPTIM_PARAMETER_UPDATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/grad_scaler.h"
#include "parallel/optim/optimizer.h"
#include "parallel/optim/update_options.h"

namespace tandem {

// Does the norm of all gradients of these buffers stay on their device? It does
// where they are float32 and on one GPU. What lies in the host's memory the
// host sums itself, in an order that no device changes. This is the one place
// where it is decided.
bool NormStaysOnDevice(const FlatBufferList& buffers);

// ClippingDivisor of the norm of all gradients, a number of float32 on their
// device for the fused optimizers to divide by. It is infinite, so that
// gradients become zero, where it is more than a float32 holds. Undefined where
// there are no gradients. The host waits for nothing. Throws c10::Error.
at::Tensor ClippingDivisorOnDevice(const FlatBufferList& buffers,
                                   double max_norm);

// While one lives, norms stay on devices of all types. For tests, which have no
// GPU.
class NormsStayOnDevices {
 public:
  NormsStayOnDevices();
  ~NormsStayOnDevices();
  NormsStayOnDevices(const NormsStayOnDevices&) = delete;
  NormsStayOnDevices& operator=(const NormsStayOnDevices&) = delete;

  // How many divisors any thread has asked for since.
  int64_t divisors() const;

 private:
  const int64_t before_;
};

// Norms of all gradients of a model: of those that are averaged over replicas,
// and of each replica's own (ParameterTraits), which have no part in the
// others' norm, since replicas would scale by different factors.
struct GradientNorms {
  double averaged = 0;
  double own = 0;
};

// The update of some flat buffers, which must outlive it. Not thread-safe.
//
// Fault point: "before_optimizer".
class ParameterUpdate {
 public:
  // InvalidArgument: those of CheckUpdateOptions and MakeGroupedOptimizer.
  static absl::StatusOr<ParameterUpdate> Create(
      const UpdateOptions& options, const FlatBufferList& buffers,
      const ShareOfBuffer& share_of = nullptr);

  // See UnscaleGradients; before anything is clipped.
  void Unscale(const at::Tensor& inverse, const at::Tensor& found_inf) {
    UnscaleGradients(buffers_, inverse, found_inf);
  }

  // By value, where the options say so.
  void ClipValues();

  // Can the device clip by the norm of all gradients of the buffers, without
  // the host's waiting for it? Of the 2-norm, where a norm that is not finite
  // is no error, all buffers are averaged or none, none is shared, and
  // NormStaysOnDevice.
  bool clips_on_device() const { return clips_on_device_; }

  // One step of the optimizers. With `norms`, the whole model's, gradients are
  // clipped in the same pass (what is another rank's share, there). Without,
  // clipping is the device's, where it is asked for (these buffers are the
  // whole model then), or there is none. FailedPrecondition for a parameter or
  // gradient that no longer lies in its flat buffer. With `found_inf`,
  // Optimizer::StepUnless's, the device leaves the step out where it is 1;
  // there are no `norms` then.
  absl::Status Step(double learning_rate,
                    const std::optional<GradientNorms>& norms,
                    const at::Tensor& found_inf = {});

  // The optimizer of all groups, for its state.
  Optimizer& optimizer() const { return *optimizer_; }

 private:
  ParameterUpdate(const UpdateOptions& options, FlatBufferList buffers,
                  std::unique_ptr<Optimizer> optimizer);

  // What gradients are divided by; refers to what it is given.
  Optimizer::DivisorOf Divisors(const std::optional<GradientNorms>& norms,
                                const at::Tensor& on_device) const;

  double clip_norm_;
  double clip_value_;
  FlatBufferList buffers_;
  std::unique_ptr<Optimizer> optimizer_;
  bool clips_on_device_ = false;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_PARAMETER_UPDATE_H_
