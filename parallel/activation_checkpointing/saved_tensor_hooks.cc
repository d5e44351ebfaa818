#include "parallel/activation_checkpointing/saved_tensor_hooks.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tandem {
namespace {

using torch::autograd::Engine;

struct Current {
  SavedTensorHooks* hooks = nullptr;
  int backward = -1;  // the one that the scope is in
};
thread_local Current current;

class EngineWithHooks final : public Engine {
 public:
  static Engine& Get() {
    static EngineWithHooks engine;
    return engine;
  }

  // Threads of the engine may call virtual functions until then.
  ~EngineWithHooks() override { stop(); }

  std::unique_ptr<torch::autograd::SavedVariableHooks>
  get_default_saved_variable_hooks() override {
    const bool applies =
        current.hooks != nullptr &&
        torch::autograd::get_current_graph_task_id() == current.backward;
    return applies ? current.hooks->Make() : nullptr;
  }
};

// Before anybody's first backward: threads of an engine that is replaced later
// would go on with what they have begun.
const bool is_installed = [] {
  torch::autograd::set_default_engine_stub(&EngineWithHooks::Get);
  return true;
}();

}  // namespace

SavedTensorHooksScope::SavedTensorHooksScope(SavedTensorHooks* hooks)
    : outer_hooks_(current.hooks), outer_backward_(current.backward) {
  TORCH_CHECK(
      is_installed && &Engine::get_default_engine() == &EngineWithHooks::Get(),
      "something in this process has replaced autograd's engine, by "
      "which saved tensors get their hooks (as Python does, when torch "
      "is imported)");
  current = {hooks, torch::autograd::get_current_graph_task_id()};
}

SavedTensorHooksScope::~SavedTensorHooksScope() {
  current = {outer_hooks_, outer_backward_};
}

}  // namespace tandem
