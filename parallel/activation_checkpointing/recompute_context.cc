#include "parallel/activation_checkpointing/recompute_context.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <utility>

namespace tandem {
namespace {

std::vector<AutocastState> AutocastNow() {
  std::vector<c10::DeviceType> types = {c10::kCPU};
  if (const auto accelerator = at::accelerator::getAccelerator()) {
    types.push_back(*accelerator);
  }
  std::vector<AutocastState> states;
  for (const c10::DeviceType type : types) {
    states.push_back(CurrentAutocast(type));
  }
  return states;
}

void SetAutocastTo(const std::vector<AutocastState>& states) {
  for (const AutocastState& each : states) SetAutocast(each);
}

// The current one of the type that `inputs` lie on, if that has any.
std::optional<c10::Device> CurrentDevice(
    const std::vector<at::Tensor>& inputs) {
  for (const at::Tensor& each : inputs) {
    const c10::DeviceType type = each.device().type();
    if (!at::accelerator::isAccelerator(type)) continue;
    return c10::impl::VirtualGuardImpl(type).getDevice();
  }
  return std::nullopt;
}

// The context as a second pass has it, which leaves losses and sums to the
// first. Its sink may hold the graph that holds this recompute context.
ComputeContext Recomputed(ComputeContext context) {
  if (!context.microbatch.has_value()) context.microbatch.emplace();
  context.microbatch->is_recomputed = true;
  context.sink.reset();
  context.terms = nullptr;
  context.recording = nullptr;
  context.replay = nullptr;
  return context;
}

}  // namespace

RecomputeContext::RecomputeContext(const std::vector<at::Tensor>& inputs,
                                   bool preserve_rng_state)
    : autocast_(AutocastNow()),
      caches_casts_(at::autocast::is_autocast_cache_enabled()),
      device_(CurrentDevice(inputs)),
      category_(CurrentMemoryCategory()),
      context_(Recomputed(ComputeContext::Current())),
      sink_(ComputeContext::Current().sink) {
  if (preserve_rng_state) draws_.emplace();
}

RecomputeContext::Recording::Recording(RecomputeContext* recompute)
    : statistics_(&recompute->statistics_) {
  if (recompute->draws_.has_value()) draws_.emplace(&*recompute->draws_);
}

RecomputeContext::Scope::Scope(const RecomputeContext& recompute)
    : autocast_before_(AutocastNow()),
      caches_casts_before_(at::autocast::is_autocast_cache_enabled()),
      device_(recompute.device_),
      category_(recompute.category_),
      context_([&recompute](ComputeContext& context) {
        const auto around = context.samples;
        context = recompute.context_;
        context.sink = recompute.sink_.lock();
        if (!context.samples.has_value()) context.samples = around;
      }),
      statistics_(&recompute.statistics_) {
  SetAutocastTo(recompute.autocast_);
  at::autocast::set_autocast_cache_enabled(recompute.caches_casts_);
  at::autocast::increment_nesting();
  if (recompute.draws_.has_value()) draws_.emplace(&*recompute.draws_);
}

RecomputeContext::Scope::~Scope() {
  // This is the end of Python's `with torch.autocast(...)`.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_cache_enabled(caches_casts_before_);
  SetAutocastTo(autocast_before_);
}

AutocastWithoutCache::AutocastWithoutCache()
    : before_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

AutocastWithoutCache::~AutocastWithoutCache() {
  at::autocast::set_autocast_cache_enabled(before_);
}

KeptBuffers::KeptBuffers(std::vector<at::Tensor> buffers)
    : buffers_(std::move(buffers)) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& each : buffers_) values_.push_back(each.clone());
}

KeptBuffers::~KeptBuffers() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < values_.size(); ++i) {
    // Graphs hold the buffer, and count its changes; this is none, and goes by
    // a tensor that counts for itself.
    buffers_[i].variable_data().copy_(values_[i]);
  }
}

std::function<std::shared_ptr<void>()> KeepingBuffers(
    std::vector<at::Tensor> buffers,
    std::function<std::shared_ptr<void>()> around) {
  if (buffers.empty()) return around;
  return [buffers = std::move(buffers), around = std::move(around)] {
    struct Both {  // members go in the other order
      std::shared_ptr<void> around;
      KeptBuffers kept;
    };
    std::shared_ptr<void> outer;
    if (around) outer = around();
    return std::shared_ptr<void>(
        new Both{std::move(outer), KeptBuffers(buffers)});
  };
}

}  // namespace tandem
