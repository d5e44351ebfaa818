#include "core/model/collective_node.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace tandem {
namespace {

// A checkpoint keeps numbers in the place of tensors, by hooks.
bool IsCheckpointed() {
  return torch::autograd::Engine::get_default_engine()
             .get_default_saved_variable_hooks() != nullptr;
}

}  // namespace

CollectiveNode::CollectiveNode(Forward forward)
    : repeats_forward_(forward == Forward::kCommunicates && IsCheckpointed()) {}

}  // namespace tandem
