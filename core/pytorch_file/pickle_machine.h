// Pickle machine: the stack that a pickle's opcodes work on, and the nodes that
// come of it.

#ifndef TANDEM_CORE_PYTORCH_FILE_PICKLE_MACHINE_H_
#define TANDEM_CORE_PYTORCH_FILE_PICKLE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/pytorch_file/pickle_node.h"

namespace tandem {

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
  // Of the last `count` values.
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

  // Of the value on top. Empty where something was wrong.
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

}  // namespace tandem

#endif  // TANDEM_CORE_PYTORCH_FILE_PICKLE_MACHINE_H_
