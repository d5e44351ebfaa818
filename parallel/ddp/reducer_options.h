// Reducer options: which gradients are averaged, and when.

#ifndef TANDEM_PARALLEL_DDP_REDUCER_OPTIONS_H_
#define TANDEM_PARALLEL_DDP_REDUCER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace tandem {

// How many gradients travel together. A bucket is full when it holds its limit
// in bytes, or more. The limits are those of the first bucket of a buffer, of
// the second, ...; the last one serves all further ones.
struct BucketOptions {
  // PyTorch's: 1 MiB, so that the first all-reduce starts early, then 25 MiB.
  std::vector<int64_t> limits = {1 << 20, 25 << 20};
};

class FlatBuffer;

struct ReducerOptions {
  BucketOptions buckets;
  // DistributedDataParallel's options of these names.
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool skip_all_reduce_unused_params = false;
  // Is what no rank uses in the first step left out of all later ones?
  bool retires_unused() const {
    return static_graph || skip_all_reduce_unused_params;
  }
  // Each of these buffers is reduced whole, when the parameter at position
  // `delayed_until` is ready.
  std::vector<FlatBuffer*> delayed;
  int64_t delayed_until = -1;
  // Called when a backward begins, on its thread, and must have Finish() called
  // at its end. Null: whoever drives the reducer calls it.
  std::function<void()> on_begin;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_REDUCER_OPTIONS_H_
