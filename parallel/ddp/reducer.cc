#include "parallel/ddp/reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/flight/recorder.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "parallel/ddp/early_end.h"
#include "parallel/ddp/gradient_streams.h"

namespace tandem {
namespace {

std::vector<std::string> NamesByPosition(
    const std::vector<FlatBuffer*>& buffers) {
  std::vector<std::string> names;
  for (const FlatBuffer* buffer : buffers) {
    for (const FlatSlot& slot : buffer->slots()) {
      const auto position = static_cast<size_t>(slot.position);
      if (names.size() <= position) names.resize(position + 1);
      names[position] = slot.name;
    }
  }
  return names;
}

}  // namespace

Reducer::Reducer(std::vector<FlatBuffer*> buffers, Communicator& group,
                 ReducerOptions options)
    : buffers_(std::move(buffers)),
      group_(group),
      options_(std::move(options)),
      divisor_(group.size()),
      marks_(NamesByPosition(buffers_), options_.static_graph) {
  for (FlatBuffer* buffer : buffers_) Register(buffer, /*delayed=*/false);
  for (FlatBuffer* buffer : options_.delayed) {
    Register(buffer, /*delayed=*/true);
  }
  absl::MutexLock lock(&mutex_);
  order_ = marks_.Order();
  use_ = at::zeros({static_cast<int64_t>(places_.size())}, at::kInt);
  AssignBuckets();
}

std::vector<FlatBuffer*> Reducer::AllBuffers() const {
  std::vector<FlatBuffer*> all = buffers_;
  all.insert(all.end(), options_.delayed.begin(), options_.delayed.end());
  return all;
}

void Reducer::Register(FlatBuffer* buffer, bool delayed) {
  for (const FlatSlot& slot : buffer->slots()) {
    const auto position = static_cast<size_t>(slot.position);
    if (places_.size() <= position) places_.resize(position + 1);
    places_[position] = {buffer, slot.id, delayed};
  }
  buffer->set_on_gradient(
      [this](const FlatSlot& slot) { MarkReady(slot.position); });
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
  if (steps_ == 0 && retires_unused()) return true;
  return options_.find_unused_parameters && !options_.static_graph;
}

// What no rank uses in the first step is left out of all later ones.
bool Reducer::retires_unused() const {
  return options_.static_graph || options_.skip_all_reduce_unused_params;
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
  status_ = CheckParameters();
  if (!status_.ok()) group_.Abort(status_);
  if (rebuilt_ || steps_ == 0 || !status_.ok()) return status_;
  status_ = Rebuild();
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
  moments_.began = DeviceMoment::Now(DeviceOfGradients(buffers_));
  marks_.Reset();
  running_.clear();
  missing_.assign(buckets_.size(), 0);
  for (size_t p = 0; p < places_.size(); ++p) {
    const Place& place = places_[p];
    if (place.buffer == nullptr || place.delayed) continue;
    if (marks_.expects(p)) ++missing_[place.bucket];
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (IsDelayed(buckets_[b])) missing_[b] = 1;
  }
  // Their buckets may start before the end of backward.
  const GradientStreamsGuard behind(AllBuffers());
  const auto is_idle = [this](const Place& place, size_t position)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                             return !place.delayed && !marks_.expects(position);
                           };
  ZeroUnused(is_idle);
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
    const Place& place = places_.at(position);
    if (place.delayed || !place.has_gradient()) continue;
    Mark(position);
  }
}

void Reducer::Mark(int64_t position) {
  if (!averaging_ || !status_.ok()) return;
  const Place& place = places_.at(position);
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
      if (IsDelayed(buckets_[b])) missing_[b] = 0;
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
    const GradientStreamsGuard behind(AllBuffers());
    if (IsDelayed(buckets_[index])) {
      ZeroUnused([index](const Place& place, size_t /*position*/) {
        return place.bucket == index;
      });
    }
    const auto purpose = [this, index] { return Purpose(index); };
    const auto start = [&] {
      const FlightPurposeScope flight({"bucket", static_cast<int>(index)});
      return scatters_ ? BucketReduction::StartScatter(buckets_[index], group_,
                                                       divisor_, purpose)
                       : BucketReduction::Start(DescribeBucket(index), hook_,
                                                group_, divisor_, purpose);
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
  for (FlatBuffer* buffer : AllBuffers()) buffer->ZeroGrad();
  {
    absl::MutexLock lock(&mutex_);
    CHECK(!active_);
    active_ = averaging_ = shadows_ = true;
    BeginAveraging();
  }
  const absl::Status done = Finish();
  shadows_ = false;
  return done;
}

absl::Status Reducer::Shadow() {
  const absl::Status done = AddNothing();
  for (FlatBuffer* buffer : AllBuffers()) buffer->ZeroGrad();
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
  if (!rebuilt_ && steps_ == 0) order_ = marks_.Order();
  ++steps_;
  return absl::OkStatus();
}

absl::Status Reducer::Average() {
  at::NoGradGuard no_grad;
  const GradientStreamsGuard behind(AllBuffers());
  const c10::Device device = DeviceOfGradients(buffers_);
  moments_.gradients_ready = DeviceMoment::Now(device);
  TANDEM_RETURN_IF_ERROR(CheckParameters());
  TANDEM_RETURN_IF_ERROR(CheckMarks());
  ZeroUnused([this](const Place& place,
                    size_t /*position*/) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return place.bucket >= running_.size();  // else it is on its way
  });
  StartBuckets(/*all=*/true);
  TANDEM_RETURN_IF_ERROR(status_);
  if (learns_use()) TANDEM_RETURN_IF_ERROR(StartExchangeOfUse());
  TANDEM_RETURN_IF_ERROR(WaitForBuckets());
  TANDEM_RETURN_IF_ERROR(SettleUse());
  moments_.ended = DeviceMoment::Now(device);
  if (Trace::OfProcess().is_on()) AddToTrace();
  return absl::OkStatus();
}

void Reducer::AddToTrace() const {
  Trace& trace = Trace::OfProcess();
  const ReducerTimes times = TimesOf(moments_);
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
               absl::StrCat(scatters_ ? "reduce-scatter" : "all-reduce",
                            " of bucket ", b),
               "",
               times.buckets[b].started,
               times.buckets[b].ended,
               {{"what", Purpose(b)}, {"group", group_.name()}}});
  }
}

absl::Status Reducer::CheckParameters() const {
  for (const FlatBuffer* buffer : AllBuffers()) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckParameters());
  }
  return absl::OkStatus();
}

absl::Status Reducer::CheckMarks() {
  if (shadows_) return absl::OkStatus();
  if (options_.static_graph) {
    // The first graph of its own is as it is, in whatever step that comes.
    return marks_.learning() ? absl::OkStatus() : marks_.CheckUnchanged();
  }
  if (learns_use() || options_.find_unused_parameters) return absl::OkStatus();
  return marks_.CheckAllMarked();
}

// A parameter that this rank did not use adds nothing to the others' mean.
void Reducer::ZeroUnused(absl::FunctionRef<bool(const Place&, size_t)> which) {
  for (size_t p = 0; p < places_.size(); ++p) {
    const Place& place = places_[p];
    if (place.buffer == nullptr || place.dead || !which(place, p)) continue;
    if (place.has_gradient()) continue;
    const FlatSlot& slot = place.slot();
    place.buffer->grads().narrow(0, slot.offset, slot.numel).zero_();
  }
}

absl::Status Reducer::StartExchangeOfUse() {
  auto* use = use_.mutable_data_ptr<int32_t>();
  for (size_t p = 0; p < places_.size(); ++p) {
    const Place& place = places_[p];
    use[p] = place.buffer != nullptr && (place.delayed || place.has_gradient());
  }
  TANDEM_ASSIGN_OR_RETURN(use_exchange_, group_.StartAllReduceSum(use_));
  return absl::OkStatus();
}

absl::Status Reducer::WaitForBuckets() {
  for (BucketReduction& reduction : running_) {
    TANDEM_RETURN_IF_ERROR(reduction.Finish());
    moments_.buckets.push_back(reduction.moments());
  }
  running_.clear();
  return absl::OkStatus();
}

// Whoever was used on any rank has the mean as its gradient on every rank.
absl::Status Reducer::SettleUse() {
  const bool learns = learns_use();
  if (learns) {
    TANDEM_RETURN_IF_ERROR(use_exchange_.Wait());
  }
  // Of a graph of its own.
  if (marks_.learning() && !shadows_) marks_.Learn();
  const auto* use = use_.const_data_ptr<int32_t>();
  for (size_t p = 0; p < places_.size(); ++p) {
    Place& place = places_[p];
    if (place.buffer == nullptr) continue;
    if (learns && use[p] == 0) {
      if (steps_ > 0 || !retires_unused()) continue;
      place.dead = true;
      marks_.Retire(p);
      continue;
    }
    if (!place.dead) place.buffer->set_has_gradient(place.index(), true);
  }
  return absl::OkStatus();
}

}  // namespace tandem
