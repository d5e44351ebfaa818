#include "core/sim/operators/libraries.h"

#include <memory>
#include <vector>

namespace tandem {
namespace sim {

torch::Library& NewLibrary(const char* name_space, c10::DispatchKey key) {
  // Never destroyed: operators are called while static objects are.
  static auto* kept = new std::vector<std::unique_ptr<torch::Library>>;
  kept->push_back(std::make_unique<torch::Library>(
      torch::Library::IMPL, name_space, key, __FILE__, __LINE__));
  return *kept->back();
}

}  // namespace sim
}  // namespace tandem
