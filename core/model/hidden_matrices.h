// Hidden matrices: the parameters that an optimizer for matrices (Muon) is for.

#ifndef TANDEM_CORE_MODEL_HIDDEN_MATRICES_H_
#define TANDEM_CORE_MODEL_HIDDEN_MATRICES_H_

#include <set>
#include <string>

#include "core/model/layer.h"

namespace tandem {

// Full names of a whole model's trained parameters of two dimensions, but for
// those of embeddings and of the head. An embedding is a module whose class has
// that in its name ("Embedding", "TokenEmbedding"); the head is the last layer
// that has parameters. What is tied to either is left out under all its names.
//
// Layers may be without values (core/meta/shapes.h). A model that is one layer
// has no head to tell from the rest: the result is empty.
std::set<std::string> HiddenMatrices(const LayerList& layers);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_HIDDEN_MATRICES_H_
