#include "parallel/ddp/reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <cstddef>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/flight/recorder.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "parallel/ddp/reducer_buckets.h"

namespace tandem {
namespace {

// The marks of a backward with something of this rank's own; `learns`: whether
// it finds out which parameters are used.
absl::Status CheckMarks(const ReadyMarks& marks, const ReducerOptions& options,
                        bool learns) {
  if (options.static_graph) {
    // The first graph of its own is as it is, in whatever step that comes.
    return marks.learning() ? absl::OkStatus() : marks.CheckUnchanged();
  }
  if (learns || options.find_unused_parameters) return absl::OkStatus();
  return marks.CheckAllMarked();
}

// Which parameters this rank has used, by position.
void NoteUse(const std::vector<ParameterPlace>& places, at::Tensor& use) {
  auto* const used = use.mutable_data_ptr<int32_t>();
  for (size_t p = 0; p < places.size(); ++p) {
    const ParameterPlace& place = places[p];
    used[p] =
        place.buffer != nullptr && (place.delayed || place.has_gradient());
  }
}

// Adds a backward's times; `operation`: what averages a bucket.
void AddToTrace(const ReducerTimes& times, const char* operation,
                const std::string& group,
                absl::FunctionRef<std::string(size_t bucket)> purpose) {
  Trace& trace = Trace::OfProcess();
  trace.Add(
      {"compute", "backward", "", times.began, times.gradients_ready, {}});
  trace.Add({"compute",
             "wait for gradients",
             "",
             times.gradients_ready,
             times.ended,
             {}});
  for (size_t b = 0; b < times.buckets.size(); ++b) {
    trace.Add({"communication",
               absl::StrCat(operation, " of bucket ", b),
               "",
               times.buckets[b].started,
               times.buckets[b].ended,
               {{"what", purpose(b)}, {"group", group}}});
  }
}

}  // namespace

Reducer::Reducer(std::vector<FlatBuffer*> buffers, Communicator& group,
                 ReducerOptions options)
    : buckets_(std::move(buffers), options),
      group_(group),
      options_(std::move(options)),
      divisor_(group.size()),
      marks_(buckets_.NamesByPosition(), options_.static_graph) {
  for (FlatBuffer* buffer : buckets_.buffers()) {
    buffer->set_on_gradient(
        [this](const FlatSlot& slot) { MarkReady(slot.position); });
  }
  absl::MutexLock lock(&mutex_);
  buckets_.set_order(marks_.Order());
  use_ = at::zeros({static_cast<int64_t>(buckets_.places().size())}, at::kInt);
  buckets_.Assign();
}

absl::Status Reducer::SetHook(CommunicationHook hook) {
  if (!hook) {
    return absl::InvalidArgumentError("the communication hook is empty");
  }
  if (hook_) {
    return absl::FailedPreconditionError(
        "a communication hook is registered already: there can be one");
  }
  hook_ = std::move(hook);
  return absl::OkStatus();
}

// Whether this step finds out which parameters are used, on any rank.
bool Reducer::learns_use() const {
  if (steps_ == 0 && options_.retires_unused()) return true;
  return options_.find_unused_parameters && !options_.static_graph;
}

absl::Status Reducer::PrepareForForward() {
  absl::MutexLock lock(&mutex_);
  if (active_ && status_.ok()) {
    status_ = absl::FailedPreconditionError(
        "the last backward has not come to its end: it threw, and what threw "
        "was caught outside of Backward()");
    group_.Abort(status_);
  }
  if (!status_.ok()) return status_;
  status_ = buckets_.CheckParameters();
  if (!status_.ok()) group_.Abort(status_);
  if (buckets_.is_rebuilt() || steps_ == 0 || !status_.ok()) return status_;
  status_ = buckets_.Rebuild(group_);
  return status_;
}

void Reducer::Begin() {
  absl::MutexLock lock(&mutex_);
  if (!active_) BeginBackward();
}

bool Reducer::is_in_backward() {
  absl::MutexLock lock(&mutex_);
  return active_;
}

void Reducer::BeginBackward() {
  active_ = true;
  averaging_ = synchronise_;
  if (options_.on_begin) options_.on_begin();
  if (averaging_) BeginAveraging();
}

void Reducer::BeginAveraging() {
  moments_ = {};
  moments_.began = DeviceMoment::Now(buckets_.device());
  marks_.Reset();
  running_.clear();
  missing_.assign(buckets_.size(), 0);
  const std::vector<ParameterPlace>& places = buckets_.places();
  for (size_t p = 0; p < places.size(); ++p) {
    if (places[p].buffer == nullptr || places[p].delayed) continue;
    if (marks_.expects(p)) ++missing_[places[p].bucket];
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_.IsDelayed(b)) missing_[b] = 1;
  }
  // Their buckets may start before the end of backward.
  const GradientStreamsGuard behind(buckets_.buffers());
  const auto is_idle = [this](const ParameterPlace& place, size_t position)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                             return !place.delayed && !marks_.expects(position);
                           };
  buckets_.ZeroUnused(is_idle);
}

void Reducer::MarkReady(int64_t position) {
  absl::MutexLock lock(&mutex_);
  if (!active_) BeginBackward();
  Mark(position);
}

void Reducer::MarkGathered() {
  absl::MutexLock lock(&mutex_);
  if (!averaging_) return;
  for (const int64_t position : marks_.Unmarked()) {
    const ParameterPlace& place = buckets_.places().at(position);
    if (place.delayed || !place.has_gradient()) continue;
    Mark(position);
  }
}

void Reducer::Mark(int64_t position) {
  if (!averaging_ || !status_.ok()) return;
  const ParameterPlace& place = buckets_.places().at(position);
  CHECK(place.buffer != nullptr) << "position " << position;
  if (place.delayed && place.bucket < running_.size()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "parameter ", place.slot().name,
        " of delay_all_reduce_named_params got a gradient after that of "
        "param_to_hook_all_reduce, for which it was to wait: name one that "
        "backward reaches later"));
    return;
  }
  bool ready = place.delayed;
  if (!place.delayed) {
    const absl::StatusOr<bool> marked = marks_.Mark(position);
    if (!marked.ok()) {
      status_ = marked.status();
      return;
    }
    ready = *marked;
    if (ready) --missing_[place.bucket];
  }
  if (ready && position == options_.delayed_until) {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_.IsDelayed(b)) missing_[b] = 0;
    }
  }
  if (ready) StartBuckets(/*all=*/false);
}

// Starts buckets in index order: those that are complete, up to the first that
// is not, or all.
void Reducer::StartBuckets(bool all) {
  while (status_.ok() && running_.size() < buckets_.size()) {
    const size_t index = running_.size();
    if (!all && missing_[index] > 0) return;
    const GradientStreamsGuard behind(buckets_.buffers());
    if (buckets_.IsDelayed(index)) {
      buckets_.ZeroUnused(
          [index](const ParameterPlace& place, size_t /*position*/) {
            return place.bucket == index;
          });
    }
    const auto purpose = [this, index] {
      return buckets_.Purpose(index, steps_ + 1);
    };
    const auto start = [&] {
      const FlightPurposeScope flight({"bucket", static_cast<int>(index)});
      return scatters_
                 ? BucketReduction::StartScatter(buckets_[index], group_,
                                                 divisor_, purpose)
                 : BucketReduction::Start(buckets_.Describe(index, has_hook()),
                                          hook_, group_, divisor_, purpose);
    };
    absl::StatusOr<BucketReduction> started = start();
    if (!started.ok()) {
      status_ = ExplainEarlyEnd(started.status(), steps_);
      return;
    }
    running_.push_back(*std::move(started));
    status_ = FaultPoint("bucket", static_cast<int64_t>(index));
  }
}

absl::Status Reducer::Fail(const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  active_ = false;
  if (status_.ok()) status_ = reason;
  group_.Abort(status_);
  return status_;
}

absl::Status Reducer::AddNothing() {
  for (FlatBuffer* buffer : buckets_.buffers()) buffer->ZeroGrad();
  {
    absl::MutexLock lock(&mutex_);
    CHECK(!active_);
    active_ = averaging_ = is_shadow_ = true;
    BeginAveraging();
  }
  const absl::Status done = Finish();
  is_shadow_ = false;
  return done;
}

absl::Status Reducer::Finish() {
  absl::MutexLock lock(&mutex_);
  if (!active_) return absl::OkStatus();
  active_ = false;
  if (!averaging_) return status_;
  if (status_.ok()) status_ = ExplainEarlyEnd(Average(), steps_);
  if (!status_.ok()) {
    group_.Abort(status_);
    return status_;
  }
  if (!buckets_.is_rebuilt() && steps_ == 0) {
    buckets_.set_order(marks_.Order());
  }
  ++steps_;
  return absl::OkStatus();
}

absl::Status Reducer::Average() {
  at::NoGradGuard no_grad;
  const GradientStreamsGuard behind(buckets_.buffers());
  const c10::Device device = buckets_.device();
  moments_.gradients_ready = DeviceMoment::Now(device);
  TANDEM_RETURN_IF_ERROR(buckets_.CheckParameters());
  if (!is_shadow_) {
    TANDEM_RETURN_IF_ERROR(CheckMarks(marks_, options_, learns_use()));
  }
  const auto is_here = [this](const ParameterPlace& place, size_t /*position*/)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                             // Else it is on its way.
                             return place.bucket >= running_.size();
                           };
  buckets_.ZeroUnused(is_here);
  StartBuckets(/*all=*/true);
  TANDEM_RETURN_IF_ERROR(status_);
  if (learns_use()) {
    NoteUse(buckets_.places(), use_);
    TANDEM_ASSIGN_OR_RETURN(use_exchange_, group_.StartAllReduceSum(use_));
  }
  for (BucketReduction& reduction : running_) {
    TANDEM_RETURN_IF_ERROR(reduction.Finish());
    moments_.buckets.push_back(reduction.moments());
  }
  running_.clear();
  TANDEM_RETURN_IF_ERROR(SettleUse());
  moments_.ended = DeviceMoment::Now(device);
  if (Trace::OfProcess().is_on()) {
    AddToTrace(
        AwaitTimes(moments_), scatters_ ? "reduce-scatter" : "all-reduce",
        group_.name(),
        [this](size_t bucket) { return buckets_.Purpose(bucket, steps_ + 1); });
  }
  return absl::OkStatus();
}

// A parameter that was used on any rank has the mean as its gradient on every
// rank.
absl::Status Reducer::SettleUse() {
  const bool learns = learns_use();
  if (learns) {
    TANDEM_RETURN_IF_ERROR(use_exchange_.Wait());
  }
  // The graph was this rank's own.
  if (marks_.learning() && !is_shadow_) marks_.Learn();
  const auto* use = use_.const_data_ptr<int32_t>();
  const std::vector<ParameterPlace>& places = buckets_.places();
  for (size_t p = 0; p < places.size(); ++p) {
    const ParameterPlace& place = places[p];
    if (place.buffer == nullptr) continue;
    if (learns && use[p] == 0) {
      if (steps_ > 0 || !options_.retires_unused()) continue;
      buckets_.Retire(p);
      marks_.Retire(p);
      continue;
    }
    if (!place.dead) place.buffer->set_has_gradient(place.index(), true);
  }
  return absl::OkStatus();
}

absl::Status ExplainEarlyEnd(const absl::Status& status, int64_t backwards) {
  // The words are the backend's and the collective check's.
  const bool has_left = absl::IsUnavailable(status) &&
                        absl::EndsWith(status.message(), "left the group");
  if (!has_left) return status;
  return absl::UnavailableError(absl::StrCat(
      status.message(), ": it took part in ", backwards,
      " averaged backwards, and this is number ", backwards + 1,
      " here; give every rank as many batches, or use Join (docs/library.md)"));
}

}  // namespace tandem
