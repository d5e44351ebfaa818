// Running statistics (BatchNorm's) that depend neither on which replica
// computes a microbatch nor when: what each microbatch adds is recorded, and
// taken in afterwards, of all microbatches in their order.
//
//   records.Begin(microbatches);             // every replica, of its own ones
//   ... MicrobatchScope({index, count, ..., &records}), forward ...
//   mine = records.Records();                // gathered from all replicas
//   records.Apply(all);

#ifndef TANDEM_CORE_MODEL_STATISTICS_RECORDS_H_
#define TANDEM_CORE_MODEL_STATISTICS_RECORDS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"

namespace tandem {

// A layer's, as PyTorch calls them; they alias its buffers.
struct RunningStatistics {
  at::Tensor running_mean, running_var;  // [features], floating
  at::Tensor num_batches_tracked;        // [], int64
  double momentum = 0.1;
};

// A torch::nn::Module that derives from this, too, leaves its running
// statistics alone where MicrobatchScope::Current()->records is given, and
// calls Record instead, in training, unless the microbatch is recomputed
// (models/layers/batch_norm_2d.h).
class RecordsStatistics {
 public:
  virtual ~RecordsStatistics() = default;
  virtual RunningStatistics running_statistics() const = 0;
};

// Records of one stage's layers, which lie on one device and have one dtype. A
// module in evaluation mode (frozen) neither records nor changes. Used by one
// thread at a time: the one that runs the stage.
class StatisticsRecords {
 public:
  // Finds the modules that derive from RecordsStatistics, in the order of the
  // layers and, within one, of torch::nn::Module::named_modules().
  explicit StatisticsRecords(const LayerList& layers);

  // The length of one microbatch's record: two numbers a feature; 0 if there is
  // nothing to record.
  int64_t size() const;

  // Forgets what was recorded, and waits for so many microbatches.
  void Begin(int microbatches);

  // `statistics` [2, features] are the mean and the unbiased variance of the
  // layer's input, in the buffers' dtype. LibTorch's error (as of a layer's
  // forward) if the layer has recorded this microbatch already, or is not of
  // this stage.
  void Record(const RecordsStatistics& layer, int microbatch,
              const at::Tensor& statistics);

  // [microbatches, size()]: of each the means of all layers, then the
  // variances. FailedPrecondition, naming the layer and the microbatch, where
  // one is missing.
  absl::StatusOr<at::Tensor> Records() const;

  // Takes in `records` [any number, size()], from any device, one after the
  // other: running = (1 - momentum) * running + momentum * record, and counts
  // them. On the CPU these are the bits of torch.nn.BatchNorm2d fed with the
  // same (contiguous) microbatches in that order.
  void Apply(const at::Tensor& records) const;

 private:
  struct Slot {
    std::string name;  // "layer1.0.bn1"
    std::shared_ptr<torch::nn::Module> module;
    RecordsStatistics* layer;      // the same
    std::vector<at::Tensor> seen;  // by microbatch; undefined: missing
  };

  std::vector<Slot> slots_;
  int microbatches_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_STATISTICS_RECORDS_H_
