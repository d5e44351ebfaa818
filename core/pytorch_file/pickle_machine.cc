#include "core/pytorch_file/pickle_machine.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

using Kind = PickleNode::Kind;

constexpr char kOrderedDict[] = "collections.OrderedDict";
constexpr char kTooShort[] = "its stack is too short";

}  // namespace

void PickleMachine::Fail(std::string why) {
  if (ok()) error_ = std::move(why);
}

// Items are copied where a tuple becomes arguments: few bytes may ask for many.
void PickleMachine::CountItems(size_t items) {
  items_ += items;
  if (items_ > kMaxPickleItems) {
    Fail(absl::StrCat("its values have more than ", kMaxPickleItems, " items"));
  }
}

void PickleMachine::Push(PickleNode node) {
  if (tree_.nodes.size() >= kMaxPickleNodes) {
    Fail(absl::StrCat("it holds more than ", kMaxPickleNodes, " values"));
  }
  CountItems(node.items.size());
  if (!ok()) return;
  stack_.push_back(static_cast<uint32_t>(tree_.nodes.size()));
  tree_.nodes.push_back(std::move(node));
}

void PickleMachine::Push(Kind kind, int64_t number, absl::string_view text) {
  Push(PickleNode{kind, number, std::string(text)});
}

// What is below the last mark belongs to who set it.
PickleMachine::Items PickleMachine::Pop(size_t count) {
  if (stack_.size() - Bottom() < count) Fail(kTooShort);
  if (!ok()) return {};
  const Items popped(stack_.end() - static_cast<ptrdiff_t>(count),
                     stack_.end());
  stack_.resize(stack_.size() - count);
  return popped;
}

PickleMachine::Items PickleMachine::PopToMark() {
  if (marks_.empty()) Fail("it has no mark");
  if (!ok()) return {};
  Items popped = Pop(stack_.size() - marks_.back());
  marks_.pop_back();
  return popped;
}

void PickleMachine::PushTuple(size_t count) {
  Push(PickleNode{Kind::kTuple, 0, "", Pop(count)});
}

void PickleMachine::PushTupleToMark() {
  Push(PickleNode{Kind::kTuple, 0, "", PopToMark()});
}

// The value on top, which must be of that kind.
PickleNode* PickleMachine::Top(Kind kind) {
  if (stack_.size() <= Bottom()) Fail(kTooShort);
  if (!ok()) return nullptr;
  PickleNode& top = tree_.nodes[stack_.back()];
  if (top.kind == kind) return &top;
  Fail("a value is of another kind than it is used as");
  return nullptr;
}

void PickleMachine::AddItems(Kind to, const Items& items) {
  PickleNode* const container = Top(to);
  if (to == Kind::kDict && items.size() % 2 == 1) Fail("a key has no value");
  CountItems(items.size());
  if (!ok()) return;
  container->items.insert(container->items.end(), items.begin(), items.end());
}

void PickleMachine::Add(Kind to, size_t count) { AddItems(to, Pop(count)); }

void PickleMachine::AddToMark(Kind to) { AddItems(to, PopToMark()); }

void PickleMachine::Memoize(uint32_t as) {
  if (stack_.size() <= Bottom()) Fail(kTooShort);
  if (ok()) memo_[as] = stack_.back();
}

void PickleMachine::Recall(uint32_t as) {
  const auto found = memo_.find(as);
  if (found == memo_.end()) Fail("it recalls what it has not put away");
  if (stack_.size() > kMaxPickleNodes) Fail("its stack is too long");
  if (ok()) stack_.push_back(found->second);
}

void PickleMachine::Call() {
  const Items popped = Pop(2);
  if (!ok()) return;
  const PickleNode& function = tree_.nodes[popped[0]];
  const PickleNode& arguments = tree_.nodes[popped[1]];
  if (function.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) {
    return Fail("it calls what is no function");
  }
  const bool is_dict = function.text == kOrderedDict && arguments.items.empty();
  if (is_dict) return Push(Kind::kDict);
  PickleNode call = {Kind::kCall, 0, function.text, arguments.items};
  Push(std::move(call));
}

void PickleMachine::PushPersistent() {
  const PickleNode* const tuple = Top(Kind::kTuple);
  if (tuple == nullptr) return;
  PickleNode node = {Kind::kPersistent, 0, "", tuple->items};
  Drop();
  Push(std::move(node));
}

void PickleMachine::DropAttributes() {
  Drop();
  Top(Kind::kDict);
}

PickleTree PickleMachine::TakeTree() {
  const Items popped = Pop(1);
  if (!ok()) return {};
  tree_.root = popped[0];
  return std::move(tree_);
}

}  // namespace tandem
