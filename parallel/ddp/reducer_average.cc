// The end of a backward: what was not ready, the wait for all, and which
// parameters have a gradient now.

#include <ATen/core/grad_mode.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/instrument/trace.h"
#include "parallel/ddp/gradient_streams.h"
#include "parallel/ddp/reducer.h"

namespace tandem {

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
