#include "parallel/activation_checkpointing/surroundings.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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
// first. Its sink may hold the graph that holds these surroundings.
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

Surroundings::Surroundings(const std::vector<at::Tensor>& inputs,
                           bool preserve_rng_state)
    : autocast_(AutocastNow()),
      caches_casts_(at::autocast::is_autocast_cache_enabled()),
      device_(CurrentDevice(inputs)),
      category_(CurrentMemoryCategory()),
      context_(Recomputed(ComputeContext::Current())),
      sink_(ComputeContext::Current().sink) {
  if (preserve_rng_state) draws_.emplace();
}

Surroundings::First::First(Surroundings* surroundings)
    : statistics_(&surroundings->statistics_) {
  if (surroundings->draws_.has_value()) draws_.emplace(&*surroundings->draws_);
}

Surroundings::Again::Again(const Surroundings& surroundings)
    : autocast_before_(AutocastNow()),
      caches_casts_before_(at::autocast::is_autocast_cache_enabled()),
      device_(surroundings.device_),
      category_(surroundings.category_),
      context_([&surroundings](ComputeContext& context) {
        const auto around = context.samples;
        context = surroundings.context_;
        context.sink = surroundings.sink_.lock();
        if (!context.samples.has_value()) context.samples = around;
      }),
      statistics_(&surroundings.statistics_) {
  SetAutocastTo(surroundings.autocast_);
  at::autocast::set_autocast_cache_enabled(surroundings.caches_casts_);
  at::autocast::increment_nesting();
  if (surroundings.draws_.has_value()) draws_.emplace(&*surroundings.draws_);
}

Surroundings::Again::~Again() {
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

}  // namespace tandem
