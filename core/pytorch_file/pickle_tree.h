// Pickle as a tree.
//
// A pickle is a program for a stack machine, some of whose instructions call
// functions by their names. Here a call becomes a node with the function's name
// and its arguments, and names are compared with a list as they come (as by
// PyTorch's weights_only unpickler, which this takes after).

#ifndef TANDEM_CORE_PYTORCH_FILE_PICKLE_TREE_H_
#define TANDEM_CORE_PYTORCH_FILE_PICKLE_TREE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Nodes of a pickle's tree: what a pickle of Python says, with nothing called.

// Enough for a hundred thousand tensors; about 200 MB.
constexpr size_t kMaxPickleNodes = size_t{1} << 21;
constexpr size_t kMaxPickleItems = 4 * kMaxPickleNodes;

struct PickleNode {
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,  // its value is never asked for
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

// Pickle machine: the stack that a pickle's opcodes work on, and the nodes that
// come of it.

// After the first thing that is wrong nothing changes any more. Memory is a
// small multiple of the pickle's, and bounded by kMaxPickleNodes and
// kMaxPickleItems.
class PickleMachine {
 public:
  // What was wrong; empty: nothing yet.
  const std::string& error() const { return error_; }
  bool ok() const { return error_.empty(); }
  void Fail(std::string why);

  void Push(PickleNode node);
  void Push(PickleNode::Kind kind, int64_t number = 0,
            absl::string_view text = {});
  // Pushes a tuple of the last `count` values.
  void PushTuple(size_t count);
  void Drop() { Pop(1); }

  void Mark() { marks_.push_back(stack_.size()); }
  void PushTupleToMark();
  // To the list or dict below them: the last `count` values, or those since the
  // last mark.
  void Add(PickleNode::Kind to, size_t count);
  void AddToMark(PickleNode::Kind to);

  void Memoize(uint32_t as);
  void Recall(uint32_t as);

  // The function and its arguments become a node; OrderedDict() a dict.
  void Call();
  void PushPersistent();
  // The value below is a dict, whose attributes are not kept.
  void DropAttributes();

  // The tree of the value on top. Empty where something was wrong.
  PickleTree TakeTree();

 private:
  using Items = std::vector<uint32_t>;

  size_t Bottom() const { return marks_.empty() ? 0 : marks_.back(); }
  void CountItems(size_t items);
  Items Pop(size_t count);
  Items PopToMark();
  PickleNode* Top(PickleNode::Kind kind);
  void AddItems(PickleNode::Kind to, const Items& items);

  std::string error_;
  PickleTree tree_;
  size_t items_ = 0;  // of all nodes
  Items stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint32_t, uint32_t> memo_;
};

// Reads a pickle of protocol 2, which torch.save writes. Trusts nothing, and
// calls nothing: InvalidArgument, with the place, for a function or class that
// `is_known` does not take, by its name ("os.system"); for other opcodes than
// state_dicts have; for what is incomplete, or has more than kMaxPickleNodes or
// kMaxPickleItems. collections.OrderedDict() is a dict; the attributes that it
// is given are dropped.
absl::StatusOr<PickleTree> ParsePickle(
    absl::string_view pickle,
    absl::FunctionRef<bool(absl::string_view global)> is_known);

}  // namespace tandem

#endif  // TANDEM_CORE_PYTORCH_FILE_PICKLE_TREE_H_
