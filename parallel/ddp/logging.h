// DDP logging data: what DistributedDataParallel tells about itself.

#ifndef TANDEM_PARALLEL_DDP_LOGGING_H_
#define TANDEM_PARALLEL_DDP_LOGGING_H_

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device_moment.h"
#include "parallel/ddp/options.h"
#include "parallel/ddp/reducer_moments.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

class Communicator;
class Reducer;

// The fields of PyTorch's DDPLoggingData (_get_ddp_logging_data) under its
// names, as far as they mean something here. Times are in nanoseconds; averages
// are over the steps that were averaged over ranks.
struct DdpLoggingData {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string backend_name;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;
  bool static_graph = false;
  std::string comm_hook;  // "" or "user"
  int64_t num_parameter_tensors = 0;
  int64_t total_parameter_size_bytes = 0;
  int64_t num_buckets = 0;
  std::vector<int64_t> bucket_sizes;  // bytes
  bool has_rebuilt_buckets = false;
  int64_t iteration = 0;

  int64_t forward_compute_time = 0;
  int64_t backward_compute_time = 0;
  int64_t backward_comm_time = 0;  // while any bucket was on its way
  int64_t backward_compute_comm_overlap_time = 0;
  int64_t avg_forward_compute_time = 0;
  int64_t avg_backward_compute_time = 0;
  int64_t avg_backward_comm_time = 0;
  int64_t avg_backward_compute_comm_overlap_time = 0;
};

// The times of one step, into `data` and its averages. `data.iteration` counts
// the step already. A bucket's time runs from its start to its end, buckets
// that overlap counted once.
void AddStepTimes(std::chrono::nanoseconds forward, const ReducerTimes& step,
                  DdpLoggingData* data);

// What is known before the first step: of the group, the options and the
// parameters whose gradients are averaged.
void DescribeReplica(const DistributedDataParallelOptions& options,
                     const Communicator& group, const FlatBufferList& averaged,
                     DdpLoggingData* data);
// And of the buckets as they are now.
void DescribeBuckets(const Reducer& reducer, DdpLoggingData* data);

// Adds one stage more of a rank, as if stages had worked one after the other.
void AddStage(const DdpLoggingData& stage, DdpLoggingData* all);

// The numbers, by name, for a report.
std::vector<std::pair<std::string, double>> ToList(const DdpLoggingData& data);

// Step times of DistributedDataParallel: from moments of its device to its
// logging data. A step is noted when its device has come to its end, so that
// nobody waits for it. Not thread-safe.
class StepTimes {
 public:
  void BeginForward(c10::Device device) { began_ = DeviceMoment::Now(device); }
  void EndForward(c10::Device device) { ended_ = DeviceMoment::Now(device); }
  // `step`, from 1, has been averaged.
  void EndStep(int64_t step, const ReducerMoments& reducer);

  // Adds those that have come, or, waiting, all.
  void Note(bool waits, DdpLoggingData* data);

 private:
  struct Step {
    int64_t number;
    DeviceMoment forward_began;
    DeviceMoment forward_ended;
    ReducerMoments reducer;
  };

  DeviceMoment began_;
  DeviceMoment ended_;
  std::deque<Step> steps_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_LOGGING_H_
