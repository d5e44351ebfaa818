// Captured step: what a step in a graph must be told anew before each replay,
// since a graph repeats the host's numbers as they were (torch.optim's
// `capturable`).

#ifndef TANDEM_PARALLEL_OPTIM_CAPTURED_STEP_H_
#define TANDEM_PARALLEL_OPTIM_CAPTURED_STEP_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace tandem {

// Optimizers that step while the calling thread is in a scope take what changes
// from step to step from numbers on the device, and say here how those are
// written. Not thread-safe.
class CapturedStep {
 public:
  enum class When {
    kThisStep,  // the one that was captured, which was counted then
    kNextStep,  // one more
    kNever,     // the capture has failed: it does not count
  };
  using Renew = std::function<void(When when, double learning_rate)>;

  // While it lives, the calling thread captures `step`. They do not nest.
  class Scope {
   public:
    explicit Scope(CapturedStep* step);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
  // Null: steps run.
  static CapturedStep* Current();

  void Add(Renew renew) { renewals_.push_back(std::move(renew)); }
  // Counts the step, and gives the current stream what writes its numbers; the
  // replay comes behind it.
  void Begin(When when, double learning_rate) const {
    for (const Renew& each : renewals_) each(when, learning_rate);
  }

 private:
  std::vector<Renew> renewals_;
};

// What one range of a captured step reads on the device. Kernels of CUDA's read
// a learning rate of float32, others the host's double.
struct StepNumbers {
  at::Tensor learning_rate;  // a scalar
  at::Tensor step;           // its number from 1, float32, a scalar
  at::Tensor of_kernels;     // as StepTensors::numbers

  static StepNumbers On(c10::Device device);
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_CAPTURED_STEP_H_
