// Last use of skip connections: what need not be kept behind a layer.

#ifndef TANDEM_CORE_MODEL_LAST_POPS_H_
#define TANDEM_CORE_MODEL_LAST_POPS_H_

#include <string>
#include <vector>

#include "core/model/layer_links.h"

namespace tandem {

// By layer: the skips that it takes and no layer after it does. Those of
// `outgoing` are needed behind all of them. Requires CheckSkips of the model
// that the layers are of.
std::vector<std::vector<std::string>> LastPops(
    const std::vector<LayerLinks>& layers,
    const std::vector<std::string>& outgoing = {});

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAST_POPS_H_
