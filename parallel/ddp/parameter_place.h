// Parameter place: where the reducer finds a parameter and its gradient.

#ifndef TANDEM_PARALLEL_DDP_PARAMETER_PLACE_H_
#define TANDEM_PARALLEL_DDP_PARAMETER_PLACE_H_

#include <cstddef>

#include "parallel/optim/flat_buffer.h"

namespace tandem {

struct ParameterPlace {
  FlatBuffer* buffer = nullptr;  // null: not trained
  size_t id = 0;                 // FlatSlot's
  bool delayed = false;
  size_t bucket = 0;
  bool dead = false;  // known to be used on no rank

  // Of a parameter that is trained; buckets may be rebuilt between two calls.
  size_t index() const { return buffer->index_of(id); }
  const FlatSlot& slot() const { return buffer->slots()[index()]; }
  bool has_gradient() const { return buffer->has_gradient(index()); }
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_PARAMETER_PLACE_H_
