#include "core/base/intern.h"

#include <mutex>
#include <string>

#include "absl/container/node_hash_set.h"

namespace tandem {

const char* Intern(absl::string_view text) {
  // Never destroyed: threads may ask at the end of the process.
  static auto* const mutex = new std::mutex;
  static auto* const texts = new absl::node_hash_set<std::string>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = texts->find(text);
  if (found != texts->end()) return found->c_str();
  return texts->emplace(text).first->c_str();
}

}  // namespace tandem
