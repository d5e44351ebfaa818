// Shapes of a model: its parameters and buffers, known without making them.

#ifndef TANDEM_CORE_META_SHAPES_H_
#define TANDEM_CORE_META_SHAPES_H_

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"

namespace tandem {

struct TensorShape {
  std::string name;  // in full, with the layer's
  std::vector<int64_t> sizes;
  c10::ScalarType dtype = c10::ScalarType::Float;
  size_t layer = 0;  // index into the specs
  bool is_buffer = false;
  // Of a parameter that an earlier layer has, too: its name there.
  std::string tied_to = {};

  int64_t numel() const;
};

// The layers' parameters and, behind each layer's, its buffers. Takes no memory
// for values and draws none. What a layer's `make` throws is an error that
// names the model's part (core/model/make_layers.h). Thread-safe.
absl::StatusOr<std::vector<TensorShape>> ShapesOf(const LayerSpecs& specs);

// Of all parameters, those that are tied to others counted once.
int64_t CountParameters(const std::vector<TensorShape>& shapes);

}  // namespace tandem

#endif  // TANDEM_CORE_META_SHAPES_H_
