#include "core/pytorch_file/state_dict.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/safetensors_header.h"

namespace tandem {
namespace {

// The sizes of an empty view, but those of 0, come to so many elements at most.
constexpr int64_t kMostEmpty = int64_t{1} << 31;

// Whether sizes but those of 0 come to `most` elements at most.
bool CountIsWithin(const std::vector<int64_t>& sizes, int64_t most) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (size == 0) continue;
    if (size > most / elements) return false;
    elements *= size;
  }
  return true;
}

bool LastIsWithin(const StorageView& view) {
  if (view.offset >= view.storage_size) return false;
  int64_t left = view.storage_size - 1 - view.offset;  // behind the first one
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const int64_t steps = view.sizes[i] - 1;
    if (steps == 0) continue;
    if (view.strides[i] > left / steps) return false;
    left -= steps * view.strides[i];
  }
  return true;
}

absl::Status BadView(const char* why, const StorageView& view) {
  return absl::InvalidArgumentError(absl::StrCat(
      why, ": sizes [", absl::StrJoin(view.sizes, ", "), "], strides [",
      absl::StrJoin(view.strides, ", "), "], offset ", view.offset,
      " in a storage of ", view.storage_size, " elements"));
}

}  // namespace

bool IsEmpty(const StorageView& view) {
  return std::count(view.sizes.begin(), view.sizes.end(), 0) > 0;
}

absl::Status CheckView(const StorageView& view) {
  if (view.strides.size() != view.sizes.size()) {
    return BadView("has not as many strides as sizes", view);
  }
  if (IsEmpty(view)) {
    return CountIsWithin(view.sizes, kMostEmpty)
               ? absl::OkStatus()
               : BadView("is empty, of sizes beyond 2^31", view);
  }
  if (!LastIsWithin(view)) return BadView("leaves its storage", view);
  if (CountIsWithin(view.sizes, view.storage_size)) return absl::OkStatus();
  return BadView("has more elements than its storage (save it contiguous)",
                 view);
}

int64_t SpanOf(const StorageView& view) {
  int64_t span = 1;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    span += (view.sizes[i] - 1) * view.strides[i];
  }
  return span;
}

namespace {

using Kind = PickleNode::Kind;
using Dtypes = std::map<std::string, c10::ScalarType, std::less<>>;

constexpr char kTensor[] = "torch._utils._rebuild_tensor_v2";
constexpr char kTensorOfDtype[] = "torch._utils._rebuild_tensor_v3";
constexpr char kParameter[] = "torch._utils._rebuild_parameter";
constexpr char kUntyped[] = "torch.storage.UntypedStorage";
constexpr size_t kMostDimensions = 64;  // LibTorch's
constexpr size_t kKeysShown = 8;
constexpr size_t kLongestStorageName = 256;  // torch.save's are numbers

const Dtypes& StorageDtypes() {
  static const auto& dtypes =
      *new Dtypes{{"torch.BFloat16Storage", c10::ScalarType::BFloat16},
                  {"torch.BoolStorage", c10::ScalarType::Bool},
                  {"torch.ByteStorage", c10::ScalarType::Byte},
                  {"torch.CharStorage", c10::ScalarType::Char},
                  {"torch.ComplexFloatStorage", c10::ScalarType::ComplexFloat},
                  {"torch.DoubleStorage", c10::ScalarType::Double},
                  {"torch.FloatStorage", c10::ScalarType::Float},
                  {"torch.HalfStorage", c10::ScalarType::Half},
                  {"torch.IntStorage", c10::ScalarType::Int},
                  {"torch.LongStorage", c10::ScalarType::Long},
                  {"torch.ShortStorage", c10::ScalarType::Short}};
  return dtypes;
}

// Dtypes of tensors that PyTorch has no class of storages for.
const Dtypes& NamedDtypes() {
  static const auto& dtypes =
      *new Dtypes{{"torch.float8_e4m3fn", c10::ScalarType::Float8_e4m3fn},
                  {"torch.float8_e5m2", c10::ScalarType::Float8_e5m2},
                  {"torch.uint16", c10::ScalarType::UInt16},
                  {"torch.uint32", c10::ScalarType::UInt32},
                  {"torch.uint64", c10::ScalarType::UInt64}};
  return dtypes;
}

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(why);
}

absl::StatusOr<c10::ScalarType> DtypeIn(const Dtypes& dtypes,
                                        const PickleNode& node) {
  const auto found = dtypes.find(node.text);
  if (node.kind == Kind::kGlobal && found != dtypes.end()) return found->second;
  return Bad("is of an unknown dtype");
}

bool Calls(absl::string_view function, const PickleNode& node) {
  return node.kind == Kind::kCall && node.text == function;
}

class StateDictReader {
 public:
  explicit StateDictReader(const PickleTree& tree) : tree_(tree) {}

  absl::StatusOr<std::vector<PickledTensor>> Read() const {
    const PickleNode& root = tree_.Root();
    if (root.kind != Kind::kDict) {
      return Bad("it holds no dict: torch.save a module's state_dict()");
    }
    TANDEM_RETURN_IF_ERROR(CheckNotNested(root));
    std::vector<PickledTensor> tensors;
    std::set<std::string> names;
    size_t dimensions =
        0;  // a tensor's numbers are copied for each of its keys
    for (size_t i = 0; i < root.items.size(); i += 2) {
      TANDEM_ASSIGN_OR_RETURN(
          PickledTensor tensor,
          Named(tree_.Item(root, i), tree_.Item(root, i + 1)));
      if (!names.insert(tensor.info.name).second) {
        return Bad(
            absl::StrCat(absl::CHexEscape(tensor.info.name), " comes twice"));
      }
      dimensions += tensor.view.sizes.size();
      if (dimensions > kMaxPickleNodes) {
        return Bad(absl::StrCat("its tensors have more than ", kMaxPickleNodes,
                                " dimensions"));
      }
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  bool HasTensors(const PickleNode& dict) const {
    if (dict.kind != Kind::kDict || dict.items.empty()) return false;
    return IsTensor(tree_.Item(dict, 1));
  }

  static bool IsTensor(const PickleNode& node) {
    return Calls(kTensor, node) || Calls(kTensorOfDtype, node) ||
           Calls(kParameter, node);
  }

  // A training loop's {"model": ..., "optimizer": ..., "epoch": ...}.
  absl::Status CheckNotNested(const PickleNode& root) const {
    std::vector<std::string> keys;
    for (size_t i = 0; i < root.items.size(); i += 2) {
      if (keys.size() == kKeysShown || !HasTensors(tree_.Item(root, i + 1))) {
        continue;
      }
      keys.push_back(
          absl::StrCat("\"", absl::CHexEscape(tree_.Item(root, i).text), "\""));
    }
    if (keys.empty()) return absl::OkStatus();
    return Bad(absl::StrCat(
        "it is a dict of dicts, with tensors under ", absl::StrJoin(keys, ", "),
        ": save that part alone, torch.save(torch.load(FILE)[", keys.front(),
        "], OTHER)"));
  }

  absl::StatusOr<PickledTensor> Named(const PickleNode& key,
                                      const PickleNode& value) const {
    if (key.kind != Kind::kText) return Bad("a key of its dict is no text");
    const std::string name = absl::CHexEscape(key.text);
    if (!CanStandInHeader(key.text)) {
      return Bad(absl::StrCat(name, ", a key of its dict, is no UTF-8"));
    }
    if (!IsTensor(value)) {
      return Bad(absl::StrCat(name, " is no tensor: save tensors alone"));
    }
    absl::StatusOr<PickledTensor> tensor = Tensor(value);
    if (!tensor.ok()) {
      return Bad(absl::StrCat(name, " ", tensor.status().message()));
    }
    tensor->info.name = key.text;
    return tensor;
  }

  // (storage, offset, sizes, strides, requires_grad, hooks[, dtype][,
  // metadata]).
  absl::StatusOr<PickledTensor> Tensor(const PickleNode& given) const {
    const bool is_parameter = Calls(kParameter, given);
    if (is_parameter && given.items.empty()) return Bad("has no arguments");
    const PickleNode& call = is_parameter ? tree_.Item(given, 0) : given;
    const bool has_dtype = Calls(kTensorOfDtype, call);
    const size_t arguments = has_dtype ? 7 : 6;
    if ((!has_dtype && !Calls(kTensor, call)) ||
        call.items.size() < arguments || call.items.size() > arguments + 1) {
      return Bad("is made of other arguments than a tensor is");
    }
    std::optional<c10::ScalarType> dtype;
    if (has_dtype) {
      TANDEM_ASSIGN_OR_RETURN(dtype,
                              DtypeIn(NamedDtypes(), tree_.Item(call, 6)));
    }
    PickledTensor tensor;
    TANDEM_RETURN_IF_ERROR(ReadStorage(tree_.Item(call, 0), dtype, &tensor));
    StorageView& view = tensor.view;
    TANDEM_ASSIGN_OR_RETURN(view.offset, Number(tree_.Item(call, 1)));
    TANDEM_ASSIGN_OR_RETURN(view.sizes, Numbers(tree_.Item(call, 2)));
    TANDEM_ASSIGN_OR_RETURN(view.strides, Numbers(tree_.Item(call, 3)));
    TANDEM_RETURN_IF_ERROR(CheckView(view));
    tensor.info.sizes = view.sizes;
    if (call.items.size() > arguments) {
      TANDEM_RETURN_IF_ERROR(
          ReadMetadata(tree_.Item(call, arguments), &tensor));
    }
    return tensor;
  }

  // None, or {"conj": True, "neg": True}.
  absl::Status ReadMetadata(const PickleNode& node,
                            PickledTensor* tensor) const {
    if (node.kind == Kind::kNone) return absl::OkStatus();
    if (node.kind != Kind::kDict) return Bad("has metadata that is no dict");
    for (size_t i = 0; i < node.items.size(); i += 2) {
      const PickleNode& key = tree_.Item(node, i);
      const PickleNode& value = tree_.Item(node, i + 1);
      const bool is_bool = value.kind == Kind::kBool;
      if (key.kind == Kind::kText && key.text == "conj" && is_bool) {
        tensor->is_conjugate = value.number != 0;
      } else if (key.kind == Kind::kText && key.text == "neg" && is_bool) {
        tensor->is_negative = value.number != 0;
      } else {
        return Bad(absl::StrCat("has metadata \"", absl::CHexEscape(key.text),
                                "\", which change what its values mean in a "
                                "way that is not known (save tensor.clone())"));
      }
    }
    const c10::ScalarType dtype = tensor->info.dtype;
    if ((tensor->is_conjugate && !c10::isComplexType(dtype)) ||
        (tensor->is_negative &&
         (c10::isFloat8Type(dtype) ||
          (!c10::isComplexType(dtype) && !c10::isFloatingType(dtype))))) {
      return Bad(absl::StrCat("is marked as conjugated or negated, which ",
                              DtypeName(dtype), " cannot be"));
    }
    return absl::OkStatus();
  }

  // ("storage", class, name, device, elements; bytes of an untyped one).
  absl::Status ReadStorage(const PickleNode& node,
                           std::optional<c10::ScalarType> dtype,
                           PickledTensor* tensor) const {
    if (node.kind != Kind::kPersistent || node.items.size() != 5 ||
        tree_.Item(node, 0).text != "storage" ||
        tree_.Item(node, 2).kind != Kind::kText ||
        tree_.Item(node, 2).text.size() > kLongestStorageName) {
      return Bad("has no storage");
    }
    tensor->storage = tree_.Item(node, 2).text;
    TANDEM_ASSIGN_OR_RETURN(tensor->view.storage_size,
                            Number(tree_.Item(node, 4)));
    const PickleNode& of_class = tree_.Item(node, 1);
    if (dtype.has_value() && of_class.text == kUntyped) {
      tensor->info.dtype = *dtype;
      tensor->view.storage_size /=
          static_cast<int64_t>(c10::elementSize(*dtype));
      return absl::OkStatus();
    }
    TANDEM_ASSIGN_OR_RETURN(tensor->info.dtype,
                            DtypeIn(StorageDtypes(), of_class));
    if (!dtype.has_value()) return absl::OkStatus();
    return Bad("has a storage of another dtype");
  }

  static absl::StatusOr<int64_t> Number(const PickleNode& node) {
    if (node.kind == Kind::kInt && node.number >= 0) return node.number;
    return Bad("has a size, stride or offset that is no number of 0 or more");
  }

  absl::StatusOr<std::vector<int64_t>> Numbers(const PickleNode& node) const {
    const bool is_size = Calls("torch.Size", node) && node.items.size() == 1;
    const PickleNode& tuple = is_size ? tree_.Item(node, 0) : node;
    if (tuple.kind != Kind::kTuple || tuple.items.size() > kMostDimensions) {
      return Bad("has sizes or strides that are none");
    }
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < tuple.items.size(); ++i) {
      TANDEM_ASSIGN_OR_RETURN(numbers.emplace_back(),
                              Number(tree_.Item(tuple, i)));
    }
    return numbers;
  }

  const PickleTree& tree_;
};

}  // namespace

bool IsKnownGlobal(absl::string_view global) {
  for (const char* known : {"collections.OrderedDict", kTensor, kTensorOfDtype,
                            kParameter, "torch.Size", kUntyped}) {
    if (global == known) return true;
  }
  return StorageDtypes().count(global) > 0 || NamedDtypes().count(global) > 0;
}

absl::StatusOr<std::vector<PickledTensor>> TensorsOfStateDict(
    const PickleTree& tree) {
  return StateDictReader(tree).Read();
}

}  // namespace tandem
