#include "parallel/ddp/logging.h"

#include <glog/logging.h>

#include <algorithm>

#include "core/comm/communicator.h"
#include "parallel/ddp/reducer.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

using std::chrono::nanoseconds;
using Clock = ReducerTimes::Clock;

int64_t Count(Clock::duration time) {
  return std::max<int64_t>(
      0, std::chrono::duration_cast<nanoseconds>(time).count());
}

// How much of [from, to) the buckets' spans cover together. They start in
// order.
Clock::duration Covered(const std::vector<ReducerTimes::Span>& spans,
                        Clock::time_point to) {
  Clock::duration covered{0};
  Clock::time_point reached;
  for (const ReducerTimes::Span& span : spans) {
    const Clock::time_point start = std::max(span.started, reached);
    const Clock::time_point end = std::min(span.ended, to);
    if (end <= start) continue;
    covered += end - start;
    reached = end;
  }
  return covered;
}

void Average(int64_t value, int64_t count, int64_t* average) {
  *average += (value - *average) / count;
}

}  // namespace

void AddStepTimes(nanoseconds forward, const ReducerTimes& step,
                  DdpLoggingData* data) {
  CHECK_GT(data->iteration, 0);
  data->forward_compute_time = forward.count();
  data->backward_compute_time = Count(step.gradients_ready - step.began);
  data->backward_comm_time = Count(Covered(step.buckets, step.ended));
  data->backward_compute_comm_overlap_time =
      Count(Covered(step.buckets, step.gradients_ready));
  const int64_t n = data->iteration;
  Average(data->forward_compute_time, n, &data->avg_forward_compute_time);
  Average(data->backward_compute_time, n, &data->avg_backward_compute_time);
  Average(data->backward_comm_time, n, &data->avg_backward_comm_time);
  Average(data->backward_compute_comm_overlap_time, n,
          &data->avg_backward_compute_comm_overlap_time);
}

void DescribeReplica(const DistributedDataParallelOptions& options,
                     const Communicator& group, const FlatBufferList& averaged,
                     DdpLoggingData* data) {
  data->rank = group.rank();
  data->world_size = group.size();
  data->backend_name = group.backend();
  data->broadcast_buffers = options.broadcast_buffers;
  data->find_unused_parameters = options.find_unused_parameters;
  data->static_graph = options.static_graph;
  for (const FlatBuffer* buffer : averaged) {
    data->num_parameter_tensors += static_cast<int64_t>(buffer->slots().size());
    for (const FlatSlot& slot : buffer->slots()) {
      data->total_parameter_size_bytes +=
          static_cast<int64_t>(slot.parameter.nbytes());
    }
  }
}

void DescribeBuckets(const Reducer& reducer, DdpLoggingData* data) {
  data->has_rebuilt_buckets = reducer.buckets().is_rebuilt();
  for (const Bucket& bucket : reducer.buckets()) {
    data->bucket_sizes.push_back(
        bucket.length *
        static_cast<int64_t>(bucket.buffer->grads().element_size()));
  }
  data->num_buckets = static_cast<int64_t>(data->bucket_sizes.size());
}

void AddStage(const DdpLoggingData& stage, DdpLoggingData* all) {
  all->num_parameter_tensors += stage.num_parameter_tensors;
  all->total_parameter_size_bytes += stage.total_parameter_size_bytes;
  all->num_buckets += stage.num_buckets;
  all->bucket_sizes.insert(all->bucket_sizes.end(), stage.bucket_sizes.begin(),
                           stage.bucket_sizes.end());
  all->iteration = std::max(all->iteration, stage.iteration);
  for (int64_t DdpLoggingData::*time :
       {&DdpLoggingData::forward_compute_time,
        &DdpLoggingData::backward_compute_time,
        &DdpLoggingData::backward_comm_time,
        &DdpLoggingData::backward_compute_comm_overlap_time,
        &DdpLoggingData::avg_forward_compute_time,
        &DdpLoggingData::avg_backward_compute_time,
        &DdpLoggingData::avg_backward_comm_time,
        &DdpLoggingData::avg_backward_compute_comm_overlap_time}) {
    all->*time += stage.*time;
  }
}

std::vector<std::pair<std::string, double>> ToList(const DdpLoggingData& data) {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  return {
      {"num_buckets", number(data.num_buckets)},
      {"num_parameter_tensors", number(data.num_parameter_tensors)},
      {"total_parameter_size_bytes", number(data.total_parameter_size_bytes)},
      {"iteration", number(data.iteration)},
      {"avg_forward_compute_time", number(data.avg_forward_compute_time)},
      {"avg_backward_compute_time", number(data.avg_backward_compute_time)},
      {"avg_backward_comm_time", number(data.avg_backward_comm_time)},
      {"avg_backward_compute_comm_overlap_time",
       number(data.avg_backward_compute_comm_overlap_time)},
  };
}

void StepTimes::EndStep(int64_t step, const ReducerMoments& reducer) {
  steps_.push_back({step, began_, ended_, reducer});
}

void StepTimes::Note(bool waits, DdpLoggingData* data) {
  while (!steps_.empty() && (waits || HaveCome(steps_.front().reducer))) {
    const Step& step = steps_.front();
    data->iteration = step.number;
    AddStepTimes(step.forward_ended.time() - step.forward_began.time(),
                 AwaitTimes(step.reducer), data);
    steps_.pop_front();
  }
}

}  // namespace tandem
