// FLOPs of a job's training: what its model costs, and what its devices could
// do, from which its throughput follows in FLOP/s and as MFU (model FLOPs
// utilization; PaLM, 2204.02311, appendix B).

#ifndef TANDEM_TOOLS_TRAINER_JOB_FLOPS_H_
#define TANDEM_TOOLS_TRAINER_JOB_FLOPS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/dataset.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

struct JobFlops {
  double forward = 0;      // of one sample (core/meta/flops.h); 0: not known
  std::string unknown;     // why not
  double peak_of_all = 0;  // FLOP/s of all devices; 0: not known

  // FLOPs of a training step: backward has twice the forward's products, by the
  // inputs and by the weights. What activation checkpointing computes a second
  // time is not the model's.
  double per_sample() const { return 3 * forward; }
  // 0 for what is not known. `samples_per_s`: of all replicas.
  double per_s(double samples_per_s) const {
    return samples_per_s * per_sample();
  }
  double utilization(double samples_per_s) const {
    return peak_of_all > 0 ? per_s(samples_per_s) / peak_of_all : 0;
  }
};

// FLOPs of the model that LayersOf gives for `data`, with all its logits. A
// registered model, whose code may not know tensors without values, is counted
// where --peak_tflops asks for it alone.
JobFlops FlopsOf(const TrainOptions& options,
                 const std::optional<Transformer>& transformer,
                 const Dataset& data, int devices);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_FLOPS_H_
