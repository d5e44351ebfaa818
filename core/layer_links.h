// What a layer shares with others beside its input and its output, declared, so
// that a model can be cut between them.

#ifndef TANDEM_CORE_LAYER_LINKS_H_
#define TANDEM_CORE_LAYER_LINKS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

struct LayerLinks {
  // Skip connections: names of tensors that this layer leaves for one further
  // on, and of those that it takes. Each is left once and taken once.
  // (torchgpipe's `skippable`, stash and pop.)
  std::vector<std::string> stashes = {};
  std::vector<std::string> takes = {};
  // Tied weights: a parameter of this layer ("weight") that is one of an
  // earlier layer, by full name ("transformer.wte.weight").
  std::map<std::string, std::string> ties = {};

  bool has_skips() const { return !stashes.empty() || !takes.empty(); }
};

// Whether skips of layers in this order fit together: InvalidArgument, naming
// the skip and the layer (by number), when one is taken that was not left
// before, left and never taken, or left or taken twice.
absl::Status CheckSkips(const std::vector<LayerLinks>& layers);

// The skips on their way before layer `layer` (after the last one for
// layers.size()), in alphabetic order. Requires CheckSkips.
std::vector<std::string> SkipsBefore(const std::vector<LayerLinks>& layers,
                                     size_t layer);

}  // namespace tandem

#endif  // TANDEM_CORE_LAYER_LINKS_H_
