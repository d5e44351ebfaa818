// Costs of the parts of a cut model for their devices. Pure arithmetic, for
// balance.h.

#ifndef TANDEM_PARALLEL_PARTITION_PART_COSTS_H_
#define TANDEM_PARALLEL_PARTITION_PART_COSTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/balance/cut.h"
#include "parallel/partition/balance.h"

namespace tandem {

// `layers` and `options` must outlive it.
class PartCosts {
 public:
  PartCosts(const std::vector<LayerCost>& layers,
            const BalanceOptions& options);

  // Time of layers begin .. end - 1, which are part number `part`: forward,
  // backward and messages.
  double Time(size_t begin, size_t end, size_t part) const;
  // The memory of a device with that part alone: the state, and what a step
  // keeps or an evaluation has, whichever is more.
  int64_t Bytes(size_t begin, size_t end, size_t part) const;

  // The same of parts of cuts: the state, with the most that is gathered at a
  // time, what `alive` microbatches keep, and what an evaluation has beside the
  // state, of one layer at a time.
  int64_t State(const LayerRange& part) const;
  int64_t Kept(const LayerRange& part, const PartAlive& alive) const;
  int64_t Evaluated(const LayerRange& part) const;

  std::vector<double> PartTimes(const Cuts& cuts) const;
  // By device, of all of its parts together.
  std::vector<double> DeviceTimes(const Cuts& cuts) const;
  std::vector<int64_t> DeviceBytes(const Cuts& cuts) const;

  size_t layers() const { return layers_.size(); }

 private:
  struct Sum {
    double time = 0;
    int64_t state = 0;
    int64_t activations = 0;
    int64_t gathered = 0;
  };

  double Message(size_t layer) const;
  bool IsSent(size_t part) const;
  int64_t Gathered(const LayerRange& part) const;

  const std::vector<LayerCost>& layers_;
  const BalanceOptions& options_;
  std::vector<size_t> device_of_;  // by part; empty: each its own
  std::vector<Sum> sums_;          // of the layers before
  // By k: the most evaluation_bytes of the 2^k layers from each one on.
  std::vector<std::vector<int64_t>> evaluated_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_PART_COSTS_H_
