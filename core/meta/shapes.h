// Shapes of a model: its parameters and buffers, known without making them.

#ifndef TANDEM_CORE_META_SHAPES_H_
#define TANDEM_CORE_META_SHAPES_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"

namespace tandem {

// Meta scope: tensors of shapes without storage (torch.device("meta") as a
// context, torchdistX's fake tensors), so that a model is made, counted and cut
// without memory for it.

// While it lives, operators that the calling thread issues and that make
// tensors make them on the meta device, whatever device they are asked for: any
// torch::nn module is made without storage, and what fills its parameters
// draws and writes nothing. Results of other operators lie where their
// operands do. Scopes nest. Instead of the meta device it may be another that
// has no values: an imagined one (SimOptions::imagined).
//
// Code that reads or writes values itself (item(), data_ptr(), at::tensor of a
// list) does not work on such tensors, and throws or fails.
class MetaScope {
 public:
  explicit MetaScope(c10::Device device = c10::Device(c10::kMeta));
  ~MetaScope();
  MetaScope(const MetaScope&) = delete;
  MetaScope& operator=(const MetaScope&) = delete;

 private:
  const c10::Device outer_;
  const c10::impl::IncludeDispatchKeyGuard guard_;
};

struct TensorShape {
  std::string name;  // in full, with the layer's
  std::vector<int64_t> sizes;
  c10::ScalarType dtype = c10::ScalarType::Float;
  size_t layer = 0;  // index into the specs
  bool is_buffer = false;
  // The name, in an earlier layer, of a parameter that this one is tied to.
  std::string tied_to = {};

  int64_t numel() const;
};

// The layers' parameters and, behind each layer's, its buffers. Takes no memory
// for values and draws none. What a layer's `make` throws is an error that
// names the model's part (core/model/layer_list.h). Thread-safe.
absl::StatusOr<std::vector<TensorShape>> ModelShapes(const LayerSpecs& specs);

// Traits of the layers' parameters that have unusual ones, by full name: what
// specs say, and what follows of the scopes that the calling thread is in
// (core/model/axis/tensor_parallel.h), whichever rank makes which layers.
// Errors and memory as ModelShapes. Thread-safe.
absl::StatusOr<TraitsByName> ModelParameterTraits(const LayerSpecs& specs);

// The number of all parameters; those that are tied to others count once.
int64_t CountParameters(const std::vector<TensorShape>& shapes);

}  // namespace tandem

#endif  // TANDEM_CORE_META_SHAPES_H_
