#include "parallel/microbatches.h"

#include <ATen/Tensor.h>
#include <ATen/ops/cat.h>
#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/describe_tensor.h"
#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

using c10::IValue;
using Sizes = std::vector<int64_t>;
using Parts = std::vector<IValue>;

int64_t SumOf(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

std::string KeyText(const IValue& key) {
  return key.isString() ? absl::StrCat("['", key.toStringRef(), "']")
         : key.isInt()  ? absl::StrCat("[", key.toInt(), "]")
                        : "[key]";
}

absl::StatusOr<Parts> SplitTensor(const at::Tensor& tensor, const Sizes& sizes,
                                  const std::string& path) {
  if (!tensor.defined()) return Parts(sizes.size(), tensor);
  if (tensor.dim() == 0 || tensor.size(0) != SumOf(sizes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", SumOf(sizes), " samples has ", DescribeTensor(tensor),
        path.empty() ? "" : absl::StrCat(" at ", path),
        ", whose dimension 0 does not count the samples"));
  }
  Parts parts;
  int64_t first = 0;
  for (int64_t size : sizes) {
    parts.emplace_back(tensor.narrow(0, first, size));
    first += size;
  }
  return parts;
}

absl::StatusOr<Parts> Split(const IValue& value, const Sizes& sizes,
                            const std::string& path);

// The parts of each element, turned round: each part's elements.
absl::StatusOr<std::vector<Parts>> SplitEach(c10::ArrayRef<IValue> elements,
                                             const Sizes& sizes,
                                             const std::string& path) {
  std::vector<Parts> by_part(sizes.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(
        const Parts parts,
        Split(elements[i], sizes, absl::StrCat(path, "[", i, "]")));
    for (size_t p = 0; p < parts.size(); ++p) by_part[p].push_back(parts[p]);
  }
  return by_part;
}

IValue ListLike(const c10::List<IValue>& list, const Parts& elements) {
  c10::impl::GenericList made(list.elementType());
  for (const IValue& each : elements) made.push_back(each);
  return made;
}

absl::StatusOr<Parts> SplitDict(const c10::impl::GenericDict& dict,
                                const Sizes& sizes, const std::string& path) {
  std::vector<c10::impl::GenericDict> made;
  for (size_t p = 0; p < sizes.size(); ++p) {
    made.emplace_back(dict.keyType(), dict.valueType());
  }
  for (const auto& item : dict) {
    TANDEM_ASSIGN_OR_RETURN(
        const Parts parts,
        Split(item.value(), sizes, absl::StrCat(path, KeyText(item.key()))));
    for (size_t p = 0; p < parts.size(); ++p) {
      made[p].insert(item.key(), parts[p]);
    }
  }
  return Parts(made.begin(), made.end());
}

absl::StatusOr<Parts> Split(const IValue& value, const Sizes& sizes,
                            const std::string& path) {
  if (value.isTensor()) return SplitTensor(value.toTensor(), sizes, path);
  if (value.isGenericDict()) {
    return SplitDict(value.toGenericDict(), sizes, path);
  }
  Parts parts;
  if (value.isTuple()) {
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<Parts> each,
        SplitEach(value.toTupleRef().elements().asArrayRef(), sizes, path));
    for (const Parts& elements : each) {
      parts.emplace_back(c10::ivalue::Tuple::create(elements));
    }
  } else if (value.isList()) {
    const c10::List<IValue> list = value.toList();
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Parts> each,
                            SplitEach(list.vec(), sizes, path));
    for (const Parts& elements : each) {
      parts.push_back(ListLike(list, elements));
    }
  } else {
    parts.assign(sizes.size(), value);
  }
  return parts;
}

absl::Status DifferentParts() {
  return absl::InvalidArgumentError(
      "the parts are not alike: each has the same tuples, lists and dicts");
}

absl::StatusOr<IValue> JoinTensors(const Parts& parts) {
  std::vector<at::Tensor> tensors;
  for (const IValue& each : parts) {
    if (!each.isTensor()) return DifferentParts();
    tensors.push_back(each.toTensor());
  }
  if (!tensors.front().defined()) return parts.front();
  return CatchTorchOr([&] { return IValue(at::cat(tensors)); });
}

// Element by element, where `elements_of` gives those of a part.
template <typename ElementsOf>
absl::StatusOr<Parts> JoinEach(const Parts& parts, ElementsOf elements_of) {
  std::vector<Parts> all;
  for (const IValue& each : parts) {
    if (each.tagKind() != parts.front().tagKind()) return DifferentParts();
    all.push_back(elements_of(each));
    if (all.back().size() != all.front().size()) return DifferentParts();
  }
  Parts joined;
  for (size_t i = 0; i < all.front().size(); ++i) {
    Parts those;
    for (const Parts& elements : all) those.push_back(elements[i]);
    TANDEM_ASSIGN_OR_RETURN(IValue one, JoinValues(those));
    joined.push_back(std::move(one));
  }
  return joined;
}

absl::StatusOr<IValue> JoinDicts(const Parts& parts) {
  const auto first = parts.front().toGenericDict();
  c10::impl::GenericDict made(first.keyType(), first.valueType());
  for (const auto& item : first) {
    Parts those;
    for (const IValue& each : parts) {
      if (!each.isGenericDict()) return DifferentParts();
      const auto dict = each.toGenericDict();
      if (dict.size() != first.size() || !dict.contains(item.key())) {
        return DifferentParts();
      }
      those.push_back(dict.at(item.key()));
    }
    TANDEM_ASSIGN_OR_RETURN(IValue one, JoinValues(those));
    made.insert(item.key(), one);
  }
  return IValue(made);
}

}  // namespace

std::vector<int64_t> EvenSizes(int64_t samples, int64_t count) {
  CHECK_GE(count, 1);
  count = std::min(count, samples);
  Sizes sizes;
  for (int64_t i = 0; i < count; ++i) {
    sizes.push_back(samples / count + (i < samples % count ? 1 : 0));
  }
  return sizes;
}

std::vector<int64_t> FixedSizes(int64_t samples, int64_t size) {
  CHECK_GE(size, 1);
  Sizes sizes;
  for (int64_t left = samples; left > 0; left -= size) {
    sizes.push_back(std::min(size, left));
  }
  return sizes;
}

std::vector<Batch> SplitBatch(const Batch& batch, const Sizes& sizes) {
  CHECK_EQ(SumOf(sizes), batch.size);
  if (sizes.size() == 1) return {batch};
  std::vector<Batch> parts;
  int64_t first = 0;
  for (int64_t size : sizes) {
    Batch part;
    part.size = size;
    if (batch.inputs.defined()) {
      part.inputs = batch.inputs.narrow(0, first, size);
    }
    if (batch.targets.defined()) {
      part.targets = batch.targets.narrow(0, first, size);
    }
    parts.push_back(std::move(part));
    first += size;
  }
  return parts;
}

absl::StatusOr<std::vector<IValue>> SplitValue(const IValue& value,
                                               const Sizes& sizes) {
  return CatchTorchOr([&] { return Split(value, sizes, ""); });
}

absl::StatusOr<IValue> JoinValues(const std::vector<IValue>& parts) {
  if (parts.empty()) {
    return absl::InvalidArgumentError("there are no parts to put together");
  }
  const IValue& first = parts.front();
  if (first.isTensor()) return JoinTensors(parts);
  if (first.isGenericDict()) return JoinDicts(parts);
  if (first.isTuple()) {
    TANDEM_ASSIGN_OR_RETURN(Parts joined, JoinEach(parts, [](const IValue& v) {
                              return v.toTupleRef().elements().vec();
                            }));
    return IValue(c10::ivalue::Tuple::create(std::move(joined)));
  }
  if (first.isList()) {
    TANDEM_ASSIGN_OR_RETURN(
        const Parts joined,
        JoinEach(parts, [](const IValue& v) { return v.toList().vec(); }));
    return ListLike(first.toList(), joined);
  }
  return first;
}

}  // namespace tandem
