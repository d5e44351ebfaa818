// Nodes of a pickle's tree: what a pickle of Python says, with nothing called.

#ifndef TANDEM_CORE_PYTORCH_FILE_PICKLE_NODE_H_
#define TANDEM_CORE_PYTORCH_FILE_PICKLE_NODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// Enough for a hundred thousand tensors; about 200 MB.
constexpr size_t kMaxPickleNodes = size_t{1} << 21;
constexpr size_t kMaxPickleItems = 4 * kMaxPickleNodes;

struct PickleNode {
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,  // whose value nobody asks for
    kText,
    kGlobal,  // a function or class
    kTuple,
    kList,
    kDict,        // a key, its value, the next key, ...
    kCall,        // a function's arguments
    kPersistent,  // one that the file has elsewhere: what says where
  };

  Kind kind = Kind::kNone;
  int64_t number = 0;     // kBool, kInt
  std::string text = {};  // kText; of kGlobal and kCall "module.name"
  // Numbers of nodes: of a tuple, list, dict, call, one that is persistent.
  std::vector<uint32_t> items = {};
};

// Nodes may be items of several others, and of themselves.
struct PickleTree {
  std::vector<PickleNode> nodes;
  uint32_t root = 0;

  const PickleNode& Root() const { return nodes[root]; }
  const PickleNode& Item(const PickleNode& of, size_t i) const {
    return nodes[of.items[i]];
  }
};

}  // namespace tandem

#endif  // TANDEM_CORE_PYTORCH_FILE_PICKLE_NODE_H_
