#include "core/precision/autocast.h"

#include <ATen/autocast_mode.h>

namespace tandem {

namespace autocast = at::autocast;

AutocastState CurrentAutocast(c10::DeviceType type) {
  // The meta device has none.
  if (!autocast::is_autocast_available(type)) {
    return {type, /*is_enabled=*/false, c10::kFloat};
  }
  return {type, autocast::is_autocast_enabled(type),
          autocast::get_autocast_dtype(type)};
}

void SetAutocast(const AutocastState& state) {
  autocast::set_autocast_enabled(state.type, state.is_enabled);
  autocast::set_autocast_dtype(state.type, state.dtype);
}

AutocastGuard::AutocastGuard(c10::DeviceType type,
                             std::optional<c10::ScalarType> dtype)
    : outer_(CurrentAutocast(type)) {
  autocast::increment_nesting();
  if (dtype) SetAutocast({type, /*is_enabled=*/true, *dtype});
}

AutocastGuard::~AutocastGuard() {
  if (autocast::decrement_nesting() == 0) autocast::clear_cache();
  SetAutocast(outer_);
}

c10::ScalarType AutocastDtype(c10::DeviceType type, c10::ScalarType theirs) {
  const bool may =
      theirs == c10::kFloat || theirs == c10::kHalf || theirs == c10::kBFloat16;
  const AutocastState state = CurrentAutocast(type);
  return may && state.is_enabled ? state.dtype : theirs;
}

}  // namespace tandem
