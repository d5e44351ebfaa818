#include "core/sim/calls/call_signature.h"

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace tandem {
namespace sim {
namespace {

// Appends values as bytes; says so when it meets what it cannot.
class Writer {
 public:
  bool Append(const c10::IValue& value) {
    // A number's type decides on the results' dtype: true, 1 and 1.0 differ.
    Text(value.tagKind());
    if (value.isNone() || value.isGenerator() || value.isDevice()) return true;
    if (value.isTensor()) return Append(value.toTensor());
    if (value.isInt()) return Number(value.toInt());
    if (value.isBool()) return Number(value.toBool());
    if (value.isDouble()) return Bytes(value.toDouble());
    if (value.isString()) return Text(value.toStringRef());
    if (value.isList()) return AppendList(value.toListRef());
    return false;
  }

  bool Text(const std::string& text) {
    Number(static_cast<int64_t>(text.size()));
    key_ += text;
    return true;
  }

  std::string Take() { return std::move(key_); }

 private:
  template <typename T>
  bool Bytes(T value) {
    key_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return true;
  }
  bool Number(int64_t value) { return Bytes(value); }

  bool Numbers(c10::IntArrayRef values) {
    Number(static_cast<int64_t>(values.size()));
    for (int64_t value : values) Number(value);
    return true;
  }

  bool Append(const at::Tensor& tensor) {
    if (!tensor.defined()) return Number(-1);
    Number(static_cast<int64_t>(tensor.scalar_type()));
    Number(tensor.is_conj() * 2 + tensor.is_neg());
    Number(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    return Numbers(tensor.sizes()) && Numbers(tensor.strides());
  }

  bool AppendList(c10::ArrayRef<c10::IValue> list) {
    Number(static_cast<int64_t>(list.size()));
    for (const c10::IValue& each : list) {
      if (!Append(each)) return false;
    }
    return true;
  }

  std::string key_;
};

constexpr size_t kMostRemembered = 1 << 16;

struct Memory {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const Geometries>> results;
};

Memory& AllRemembered() {
  static auto* memory = new Memory;
  return *memory;
}

}  // namespace

std::optional<std::string> CallSignature(const OperatorTraits& traits,
                                         const torch::jit::Stack& arguments) {
  Writer writer;
  writer.Text(traits.name);
  for (const c10::IValue& each : arguments) {
    // A learning rate is another in each step.
    if (each.isDouble() && !traits.shape_follows_reals) {
      writer.Text("real");
      continue;
    }
    if (!writer.Append(each)) return std::nullopt;
  }
  return writer.Take();
}

const Geometries* Remembered(const std::string& signature) {
  std::lock_guard<std::mutex> lock(AllRemembered().mutex);
  const auto found = AllRemembered().results.find(signature);
  return found == AllRemembered().results.end() ? nullptr : found->second.get();
}

void Remember(const std::string& signature, Geometries results) {
  std::lock_guard<std::mutex> lock(AllRemembered().mutex);
  if (AllRemembered().results.size() >= kMostRemembered) return;
  AllRemembered().results.emplace(
      signature, std::make_unique<const Geometries>(std::move(results)));
}

}  // namespace sim
}  // namespace tandem
