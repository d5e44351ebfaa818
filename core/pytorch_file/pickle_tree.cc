#include "core/pytorch_file/pickle_tree.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
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

namespace {

constexpr int kProtocol = 2;
constexpr size_t kLongestName = 256;

// Takes opcodes, named as in Python's pickletools, off the pickle. Where an
// opcode's bytes are not there it takes nothing, and the machine has failed.
class PickleReader {
 public:
  PickleReader(absl::string_view pickle,
               absl::FunctionRef<bool(absl::string_view)> is_known)
      : all_(pickle), rest_(pickle), is_known_(is_known) {}

  absl::StatusOr<PickleTree> Read() {
    uint8_t opcode = 0;
    while (machine_.ok() && opcode != '.') {
      opcode = static_cast<uint8_t>(Number<uint8_t>());
      if (machine_.ok() && opcode != '.') Do(opcode);
    }
    PickleTree tree = machine_.TakeTree();
    if (machine_.ok()) return tree;
    return absl::InvalidArgumentError(absl::StrCat(
        "byte ", all_.size() - rest_.size(), ": ", machine_.error()));
  }

 private:
  absl::string_view Take(uint64_t bytes) {
    if (bytes > rest_.size()) machine_.Fail("it ends too early");
    if (!machine_.ok()) return {};
    const absl::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  template <typename T>
  int64_t Number() {
    const absl::string_view bytes = Take(sizeof(T));
    T number = 0;
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), sizeof(T));
    return static_cast<int64_t>(number);
  }

  uint32_t Byte() { return static_cast<uint32_t>(Number<uint8_t>()); }
  uint32_t Word() { return static_cast<uint32_t>(Number<uint32_t>()); }

  std::string Line() {
    const size_t end = rest_.substr(0, kLongestName).find('\n');
    if (end == absl::string_view::npos) machine_.Fail("a name has no end");
    const std::string line(Take(end));
    Take(1);
    return line;
  }

  void Do(uint8_t opcode) {
    if (DoConstant(opcode) || DoContainer(opcode) || DoMemo(opcode)) return;
    switch (opcode) {
      case 0x80:
        return CheckProtocol();
      case 'c':
        return PushGlobal();
      case 'R':
        return machine_.Call();
      case 'Q':
        return machine_.PushPersistent();
      case 'b':
        return machine_.DropAttributes();
    }
    machine_.Fail(absl::StrCat("it has opcode 0x",
                               absl::Hex(opcode, absl::kZeroPad2),
                               ", which no state_dict needs"));
  }

  bool DoConstant(uint8_t opcode) {
    switch (opcode) {
      case 'N':
        machine_.Push(Kind::kNone);
        return true;
      case 0x88:
      case 0x89:
        machine_.Push(Kind::kBool, opcode == 0x88 ? 1 : 0);
        return true;
      case 'K':
        machine_.Push(Kind::kInt, Number<uint8_t>());
        return true;
      case 'M':
        machine_.Push(Kind::kInt, Number<uint16_t>());
        return true;
      case 'J':
        machine_.Push(Kind::kInt, Number<int32_t>());
        return true;
      case 0x8a:
        PushLong();
        return true;
      case 'G':
        Take(sizeof(double));
        machine_.Push(Kind::kFloat);
        return true;
      case 'X':
        machine_.Push(Kind::kText, 0, Take(Word()));
        return true;
    }
    return false;
  }

  bool DoContainer(uint8_t opcode) {
    switch (opcode) {
      case '(':
        machine_.Mark();
        return true;
      case ')':
        machine_.PushTuple(0);
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        machine_.PushTuple(opcode - 0x84);
        return true;
      case 't':
        machine_.PushTupleToMark();
        return true;
      case ']':
        machine_.Push(Kind::kList);
        return true;
      case 'a':
        machine_.Add(Kind::kList, 1);
        return true;
      case 'e':
        machine_.AddToMark(Kind::kList);
        return true;
      case '}':
        machine_.Push(Kind::kDict);
        return true;
      case 's':
        machine_.Add(Kind::kDict, 2);
        return true;
      case 'u':
        machine_.AddToMark(Kind::kDict);
        return true;
    }
    return false;
  }

  bool DoMemo(uint8_t opcode) {
    switch (opcode) {
      case 'q':
        machine_.Memoize(Byte());
        return true;
      case 'r':
        machine_.Memoize(Word());
        return true;
      case 'h':
        machine_.Recall(Byte());
        return true;
      case 'j':
        machine_.Recall(Word());
        return true;
    }
    return false;
  }

  void PushGlobal() {
    const std::string module = Line();
    const std::string global = absl::StrCat(module, ".", Line());
    if (machine_.ok() && !is_known_(global)) {
      machine_.Fail(absl::StrCat("it asks for ", absl::CHexEscape(global),
                                 ", which no state_dict of tensors needs; "
                                 "nothing was called"));
    }
    machine_.Push(Kind::kGlobal, 0, global);
  }

  void PushLong() {
    const absl::string_view bytes = Take(Byte());
    if (bytes.size() > sizeof(int64_t)) machine_.Fail("a number is too large");
    if (!machine_.ok()) return;
    const bool is_negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
    int64_t number = is_negative ? -1 : 0;
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), bytes.size());
    machine_.Push(Kind::kInt, number);
  }

  void CheckProtocol() {
    const uint32_t protocol = Byte();
    if (protocol == kProtocol) return;
    machine_.Fail(absl::StrCat("it is a pickle of protocol ", protocol,
                               ", expected ", kProtocol,
                               ", torch.save's default"));
  }

  const absl::string_view all_;
  absl::string_view rest_;
  const absl::FunctionRef<bool(absl::string_view)> is_known_;
  PickleMachine machine_;
};

}  // namespace

absl::StatusOr<PickleTree> ParsePickle(
    absl::string_view pickle,
    absl::FunctionRef<bool(absl::string_view global)> is_known) {
  return PickleReader(pickle, is_known).Read();
}

}  // namespace tandem
