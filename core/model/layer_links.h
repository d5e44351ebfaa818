// Layer links: skip connections, tied weights and further inputs, which a layer
// shares with others, declared, so that a model can be cut between them.

#ifndef TANDEM_CORE_MODEL_LAYER_LINKS_H_
#define TANDEM_CORE_MODEL_LAYER_LINKS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

struct LayerLinks {
  // Skip connections: names of tensors that this layer leaves for others
  // further on, and of those that it takes. Any number of layers may take one;
  // its gradient is the sum of theirs. Behind the last of them another may be
  // left under that name. (torchgpipe's `skippable`, stash and pop, of which
  // each is for one.)
  std::vector<std::string> stash = {};
  std::vector<std::string> pop = {};
  // Tied weights: a parameter of this layer ("weight") that is one of an
  // earlier layer, by full name ("transformer.wte.weight").
  std::map<std::string, std::string> ties = {};
  // What this layer reads of a batch beside its inputs, as
  // core/model/batch_inputs.h names it: "mask", "boxes[0]". It comes past
  // earlier layers as a skip does, but any number of layers may read it, and it
  // takes no gradient.
  std::vector<std::string> reads = {};

  bool has_skips() const {
    return !stash.empty() || !pop.empty() || !reads.empty();
  }
};

// Whether skips of layers in this order fit together: InvalidArgument, naming
// the skip and the layer (by number), when one is taken that was not left
// before, left and never taken (before another of its name is left), or left
// under the name of a further input. `loss_takes` is what the loss takes as a
// layer behind the last one (LossNames::outputs); errors call it the loss.
absl::Status CheckSkips(const std::vector<LayerLinks>& layers,
                        const std::vector<std::string>& loss_takes = {});

// What is on its way before layer `layer` (after the last one for
// layers.size()), in alphabetic order: skips that were left before it and that
// it, one after it, or the loss takes, and further inputs that these read.
// Requires CheckSkips.
std::vector<std::string> SkipsBefore(
    const std::vector<LayerLinks>& layers, size_t layer,
    const std::vector<std::string>& loss_takes = {});

// The further inputs that these layers read, in alphabetic order.
std::vector<std::string> FurtherInputs(const std::vector<LayerLinks>& layers);

// By layer: the skips that it takes and no layer after it does. The skips of
// `outgoing` are needed behind all of them. Requires CheckSkips of the model
// that the layers are of.
std::vector<std::vector<std::string>> LastPops(
    const std::vector<LayerLinks>& layers,
    const std::vector<std::string>& outgoing = {});

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAYER_LINKS_H_
